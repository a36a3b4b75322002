"""The examples of the data room train on real rows and learn something."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import trek

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _mirror(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "model_def.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fit(trial: Any, **hparams: Any) -> Any:
    return trek.fit(trial, hparams={"global_batch_size": 256, **hparams}, max_length=trek.epochs(1))


def test_census_beats_always_saying_no_and_carries_its_preparation() -> None:
    module = load("census")
    result = fit(module.CensusTrial, learning_rate=0.003, embedding_dim=8)
    assert result.best["validation_accuracy"] > 0.84  # 0.764 of the test rows earn less
    fresh = module.WideAndDeep(module.make_preparation().fit(trek.data.open("adult")), dim=8)
    fresh.load_state_dict(result.checkpoint.state_dict())
    raw = trek.data.open("adult", split="test").head(100)
    features = list(fresh.prepare(raw.to_numpy()).values())[:-1]
    with torch.inference_mode():
        assert fresh(*features).shape == (100,)


def test_ctr_beats_the_base_rate() -> None:
    result = fit(load("ctr").ClickTrial, learning_rate=0.002, embedding_dim=8, num_bins=1000)
    assert result.best["validation_loss"] < 0.52  # always saying the share of clicks costs 0.532


@pytest.mark.parametrize(
    ("name", "trial", "metric", "limit"),
    [("census", "CensusTrial", "validation_accuracy", 0.83), ("ctr", "ClickTrial", "validation_loss", 0.53)],
)
def test_the_same_trial_trains_on_parameter_servers(name: str, trial: str, metric: str, limit: float) -> None:
    plain, served = (yaml.safe_load((EXAMPLES / name / f"{one}.yaml").read_text()) for one in ("const", "ps"))
    resources = served.pop("resources")
    assert served.pop("training") == {"strategy": "ps"}
    assert {**served, "description": plain["description"]} == plain, "nothing else is another one"
    result = trek.fit(
        getattr(load(name), trial),
        hparams=served["hyperparameters"],
        max_length=trek.epochs(1),
        strategy="ps",
        servers=resources["servers"],
        workers=resources["slots_per_trial"],
        show_progress=False,
    )
    best = result.best[metric]
    assert best > limit if metric == "validation_accuracy" else best < limit


@pytest.mark.parametrize("by", ["disk", "memory"])
def test_the_dataflow_hands_every_row_of_mnist_to_exactly_one_of_four_ranks(by: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "dataflow" / "mnist.py"), "--by", by]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "prepared"), "--audit", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = np.concatenate([np.load(tmp_path / f"rank-{rank}.npy") for rank in range(4)])
    assert np.array_equal(np.sort(seen), np.arange(60000))
    assert float(done.stdout.split()[-1]) > 0.93
