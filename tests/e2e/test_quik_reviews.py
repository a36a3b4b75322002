"""pytorch-quik's whole way as its README tells it: its loop recorded with MLflow, its weights from there, served."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mlflow", reason="MLflow is not installed")
pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)

import trek

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPT = EXAMPLES / "compat" / "pytorch_quik" / "reviews.py"
SMALL = ["--rows", "4000", "--epochs", "2", "--bs", "64", "--learning_rate", "0.003"]
pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers and what it imports


@pytest.fixture
def folder(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a small random model that knows the most frequent words of the reviews."""
    for name, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("_MLFLOW_TELEMETRY_SESSION_ID", "tests"),
        ("OMP_NUM_THREADS", "1"),
        ("TREK_DATA_MIRROR", str(shared_data)),
    ):
        monkeypatch.setenv(name, value)
    (tmp_path / "tiny").mkdir()
    runpy.run_path(str(EXAMPLES / "huggingface" / "finetune.py"))["tiny_model"](tmp_path / "tiny")
    return tmp_path


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, str(SCRIPT), "--bert_type", "tiny", *words]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy(printed: str) -> float:
    return float(re.findall(r"^accuracy (.*)$", printed, flags=re.MULTILINE)[-1])


def test_the_classifier_is_trained_recorded_archived_and_served(folder: Path) -> None:
    from mlflow import MlflowClient

    store = f"sqlite:///{folder}/mlflow.db"
    printed = run(folder, *SMALL, "--use_mlflow", "--tracking_uri", store)
    assert accuracy(printed) > 0.62, "70 % of the reviews set aside, where 51 % are praise"
    client = MlflowClient(store)
    (recorded,) = client.search_runs([client.get_experiment_by_name("reviews").experiment_id])
    assert recorded.info.status == "FINISHED"
    assert recorded.data.metrics["accuracy"] == pytest.approx(accuracy(printed), abs=1e-3)
    assert len(client.get_metric_history(recorded.info.run_id, "train_loss")) == 2 * 63
    with trek.serve.Server(folder / "data" / "tiny" / "serve" / "reviews.mar", port=0) as server:
        asked = run(folder, "--ask", f"{server.url}/predict")
    assert accuracy(asked) == pytest.approx(accuracy(printed), abs=0.02), "longer reviews are not cut by the server"
