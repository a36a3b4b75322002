"""The examples run on a Ray cluster by one setting, and give what they give on this machine, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

import trek
from trek.testing.ray_cluster import RayCluster

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FLOW = """
import json, sys
from flow import accuracy, flow

params = {"dataset": "digits", "batch_size": 64}
run = flow.run(engine=sys.argv[1], params=params, show=False)
print(json.dumps(run[accuracy]))
"""


@pytest.fixture
def _mirror(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))


def _trial(example: str, name: str) -> Any:
    spec = spec_from_file_location(f"{example}_model_def", EXAMPLES / example / "model_def.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.usefixtures("_mirror")
@pytest.mark.parametrize(
    ("example", "name", "hparams"),
    [
        ("mnist", "MNistTrial", {"learning_rate": 0.04, "dropout": 0.25, "n_filters1": 4, "n_filters2": 8}),
        ("ctr", "ClickTrial", {"learning_rate": 0.001, "embedding_dim": 8, "num_bins": 1000}),
    ],
)
def test_a_trial_gives_the_same_model_on_both_engines(
    cluster: RayCluster, example: str, name: str, hparams: dict[str, float]
) -> None:
    settings: dict[str, Any] = {
        "hparams": {"global_batch_size": 64, **hparams},
        "max_length": trek.batches(6),
        "workers": 2,
        "show_progress": False,
    }
    here, there = (trek.fit(_trial(example, name), **settings, engine=engine) for engine in ("local", "ray"))
    assert here.best == there.best
    first, second = (result.checkpoint.state_dict() for result in (here, there))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_the_flow_runs_on_both_engines(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    found = []
    for engine in ("local", "ray"):
        monkeypatch.setenv("TREK_HOME", str(tmp_path / engine))  # or the second one would be in the cache
        done = subprocess.run(
            [sys.executable, "-c", FLOW, engine], cwd=EXAMPLES / "mnist", capture_output=True, text=True, timeout=240,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
