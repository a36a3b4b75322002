"""What is recorded in MLflow: the contract of loggers on a real SQLite store, names, parameters, nesting."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("mlflow", reason="MLflow is not installed")

from mlflow import MlflowClient
from mlflow.entities import Run

from trek.errors import ConfigError
from trek.integrations.mlflow_recorder import MetricNames, MLflowRecorder, allowed_name, flat_params
from trek.testing.logger_conformance import LoggerConformance, Recorded
from trek.train.loggers import ArtifactRow, EndState, JobIdentity, Logger, MetricRow, open_logger

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, and those of what it imports


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("_MLFLOW_TELEMETRY_SESSION_ID", "tests")  # MLflow sets it for good where it is not set


@pytest.fixture
def client(database: str) -> MlflowClient:
    return MlflowClient(database)


def runs(client: MlflowClient, experiment: str) -> list[Run]:
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id], order_by=["attributes.start_time ASC"]))


def points(client: MlflowClient, run: Run) -> list[Recorded]:
    return [
        (key.rpartition("/")[0], int(one.step), key.rpartition("/")[2], one.value)
        for key in run.data.metrics
        for one in client.get_metric_history(run.info.run_id, key)
    ]


class TestMLflow(LoggerConformance):
    """An experiment of MLflow for each test."""

    states: ClassVar[dict[EndState, str]] = {
        "completed": "FINISHED",
        "failed": "FAILED",
        "killed": "KILLED",
        "paused": "SCHEDULED",
    }

    @pytest.fixture
    def make_logger(self, database: str, tmp_path: Path) -> Callable[[], Logger]:
        self._client = MlflowClient(database)
        place = (tmp_path / "artifacts").as_uri()
        if self._client.get_experiment_by_name(str(tmp_path)) is None:
            self._client.create_experiment(str(tmp_path), artifact_location=place)
        return lambda: MLflowRecorder(tracking_uri=database, experiment=str(tmp_path))

    def recorded(self, folder: Path) -> list[Recorded]:
        (run,) = runs(self._client, str(folder))
        return points(self._client, run)

    def spelled(self, name: str) -> str:
        return allowed_name(name)

    def ended(self, folder: Path) -> str:
        (run,) = runs(self._client, str(folder))
        return str(run.info.status)


def row(batches: int, **metrics: float) -> MetricRow:
    return MetricRow("training", batches, 0.0, metrics, time_s=1e9 + batches)


def record(recorder: MLflowRecorder, job: JobIdentity, *rows: MetricRow, state: EndState | None = None) -> None:
    recorder.identify(job)
    recorder.start(name=job.name, hparams={"lr": 0.1})
    for one in rows:
        recorder.log_metrics(one)
    if state is not None:
        recorder.end(state)
    recorder.close()


def test_trials_are_nested_in_the_run_of_their_experiment(database: str, client: MlflowClient) -> None:
    first, second = (
        JobIdentity(key=f"t{i}", name=f"mine/{i}", trial_id=i, experiment_id=7, experiment_key="e", experiment_name="n")
        for i in (1, 2)
    )
    record(MLflowRecorder(tracking_uri=database), first, row(1, loss=1.0))
    parent, trial = runs(client, "n")
    assert (parent.info.status, trial.data.tags["mlflow.parentRunId"]) == ("RUNNING", parent.info.run_id)
    record(MLflowRecorder(tracking_uri=database), second, row(1, loss=1.0), state="failed")
    assert runs(client, "n")[0].info.status == "RUNNING"  # the first trial still runs
    record(MLflowRecorder(tracking_uri=database), first, row(1, loss=1.0), row(2, loss=0.5), state="completed")
    parent, *trials = runs(client, "n")
    assert [parent.info.status, *(one.info.status for one in trials)] == ["FINISHED", "FINISHED", "FAILED"]
    assert sorted(points(client, trials[0])) == [("training", 1, "loss", 1.0), ("training", 2, "loss", 0.5)]
    assert trials[0].data.tags["trek.trial_id"] == "1"


def test_a_run_is_continued_by_its_id_and_keeps_its_parameters(database: str, client: MlflowClient) -> None:
    run_id = client.create_run(client.create_experiment("by id")).info.run_id
    for batches in (1, 2):
        recorder = MLflowRecorder(tracking_uri=database, run_id=run_id, tags={"team": "a"})
        record(recorder, JobIdentity(key=str(batches)), row(batches, loss=math.inf), state="completed")
    found = client.get_run(run_id)
    assert (found.data.params, found.data.tags["team"]) == ({"lr": "0.1"}, "a")
    assert [one[1] for one in points(client, found)] == [1, 2]


def test_artifacts_are_uploaded_by_their_names(database: str, client: MlflowClient, tmp_path: Path) -> None:
    client.create_experiment("files", artifact_location=(tmp_path / "kept").as_uri())
    (tmp_path / "stored-7").write_text("x,y")
    recorder = MLflowRecorder(tracking_uri=database, experiment="files")
    recorder.log_artifact(ArtifactRow("tables/a.csv", str(tmp_path / "stored-7"), num_bytes=3, batches=1, time_s=1e9))
    record(recorder, JobIdentity(key="files"))
    (run,) = runs(client, "files")
    assert [one.path for one in client.list_artifacts(run.info.run_id, "tables")] == ["tables/a.csv"]


def test_names_and_parameters_are_spelled_as_mlflow_allows() -> None:
    names = MetricNames()
    assert names.spelled("training/top-1 (%)") == "training/top-1 ___"
    assert names.spelled("training/top-1 [%]") not in ("training/top-1 ___", "training/top-1 [%]")
    assert names.spelled("training/top-1 (%)") == "training/top-1 ___"
    assert allowed_name("../a//b") == "_/a/_/b"
    assert flat_params({"net": {"units": [1, 2]}, "x": None}) == {"net.units": "[1, 2]", "x": "None"}


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"logger 'mlflow' has no setting 'uri'"):
        open_logger("mlflow", folder=tmp_path, uri="http://localhost")
    with pytest.raises(ConfigError, match="tags of MLflow must be text by name, got 'a': 1"):
        open_logger("mlflow", folder=tmp_path, tags={"a": 1})
