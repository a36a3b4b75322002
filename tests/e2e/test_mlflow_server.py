"""Runs recorded on a real MLflow server, which is not there, comes, hangs and is killed while they go on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mlflow", reason="MLflow is not installed")

from mlflow import MlflowClient

import trek
from trek.integrations.mlflow import MLflowLogger
from trek.testing.mlflow_server import MLflowServer
from trek.testing.trials import PointsTrial
from trek.train.loggers import JobIdentity, MetricRow

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]
HPARAMS = {"global_batch_size": 16, "lr": 0.1}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MLflowServer]:
    for name, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("_MLFLOW_TELEMETRY_SESSION_ID", "tests"),
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", "2"),
    ):
        monkeypatch.setenv(name, value)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    server = MLflowServer(tmp_path, port=port)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    yield server
    server.kill()


def row(batches: int) -> MetricRow:
    return MetricRow("training", batches, 0.0, {"loss": 1.0}, time_s=1e9 + batches)


def test_a_run_is_whole_whatever_its_server_does(server: MLflowServer, capfd: pytest.CaptureFixture[str]) -> None:
    """One server for all of it: starting one takes many seconds."""
    _log_while_it_comes_and_hangs(server)
    client = MlflowClient(server.url)
    (run,) = client.search_runs([client.get_experiment_by_name("faults").experiment_id])
    assert run.info.status == "KILLED"
    steps = [one.step for one in client.get_metric_history(run.info.run_id, "training/loss")]
    assert sorted(steps) == list(range(300))
    assert "not recorded" not in capfd.readouterr().err
    _train_on_two_processes(server, client)
    server.kill()
    logger = MLflowLogger(tracking_uri=server.url, experiment="faults", drain_s=3)
    logger.start(name="run", hparams={})
    logger.log_metrics(row(1))
    logger.close()
    assert "2 of 2 reports to MLflow were not recorded" in capfd.readouterr().err


def _log_while_it_comes_and_hangs(server: MLflowServer) -> None:
    logger = MLflowLogger(tracking_uri=server.url, experiment="faults", drain_s=120)
    logger.identify(JobIdentity(key="faults"))
    logger.start(name="run", hparams={})
    for batches in range(100):  # nobody listens yet
        logger.log_metrics(row(batches))
    server.start()
    for batches in range(100, 200):
        logger.log_metrics(row(batches))
    server.freeze()
    for batches in range(200, 300):
        logger.log_metrics(row(batches))
    server.thaw()
    logger.end("killed")
    logger.close()


def _train_on_two_processes(server: MLflowServer, client: MlflowClient) -> None:
    """One run for both ranks, with its hyperparameters, and a model that can be loaded."""
    trek.fit(
        PointsTrial,
        hparams=HPARAMS,
        max_length=trek.epochs(1),
        loggers=[{"name": "mlflow", "tracking_uri": server.url, "experiment": "trained", "models": True}],
        workers=2,
        show_progress=False,
    )
    (run,) = client.search_runs([client.get_experiment_by_name("trained").experiment_id])
    assert (run.info.status, run.data.params) == ("FINISHED", {"global_batch_size": "16", "lr": "0.1"})
    assert any(name.startswith("validation/") for name in run.data.metrics)
    import mlflow.pyfunc  # not before warnings are ignored

    model = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/model")
    assert model.predict([[1.0] * 6]).shape == (1, 2)
