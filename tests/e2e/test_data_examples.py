"""The examples of the data room train on real rows and learn something."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

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
