"""pytorch-quik's whole way with a search: two trials of the example, each recorded with MLflow."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.tune", reason="Ray Tune is not installed", exc_type=ImportError)
pytest.importorskip("mlflow", reason="MLflow is not installed")

from mlflow import MlflowClient

from trek.testing.ray_cluster import RayCluster

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.mark.campaign
def test_the_example_is_searched_over_and_every_trial_is_recorded(
    cluster: RayCluster, tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = Path(__file__).resolve().parents[3] / "examples"
    for name, value in (("RAY_ADDRESS", cluster.address), ("TREK_DATA_MIRROR", str(shared_data))):
        monkeypatch.setenv(name, value)
    (tmp_path / "tiny").mkdir()
    runpy.run_path(str(examples / "huggingface" / "finetune.py"))["tiny_model"](tmp_path / "tiny")
    (tmp_path / "space.yaml").write_text("lr: {grid_search: [0.003, 1.0e-9]}")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    small = ["--rows", "4000", "--epochs", "2", "--bs", "64", "--bert_type", "tiny", "--space", "space.yaml"]
    search = ["--use_ray_tune", "--num_samples", "1", "--use_mlflow", "--tracking_uri", store]
    script = examples / "compat" / "pytorch_quik" / "reviews.py"
    done = subprocess.run(
        [sys.executable, str(script), *small, *search], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "best {'lr': 0.003}" in done.stdout
    client = MlflowClient(store)
    runs = client.search_runs([client.get_experiment_by_name("reviews").experiment_id])
    nested = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert sorted(run.data.params["lr"] for run in nested) == ["0.003", "1e-09"]
    assert {run.info.status for run in runs} == {"FINISHED"}
