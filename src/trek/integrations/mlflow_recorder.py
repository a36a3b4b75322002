"""MLflowRecorder: sends a run to MLflow in batches, and finds the same run again after a restart.

A run is found by the tag `trek.job`. MLflow cannot replace points, so those that it has already are not sent again:
after a restart, and after a request of which nobody knows whether it arrived, it is asked for the newest step of every
metric.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag

from trek._version import __version__
from trek.distribution import DISTRIBUTION
from trek.system.urls import is_remote
from trek.train.loggers.base import ArtifactRow, CheckpointRow, EndState, JobIdentity, MetricRow
from trek.train.loggers.recorder import Recorder

JOB_TAG, EXPERIMENT_TAG, PARENT_TAG = "trek.job", "trek.experiment", "mlflow.parentRunId"
_STATUS: dict[EndState, str] = {
    "completed": "FINISHED",
    "failed": "FAILED",
    "killed": "KILLED",
    "paused": "SCHEDULED",
}
_MAX_METRICS, _MAX_PARAMS, _MAX_NAME, _MAX_VALUE = 1000, 100, 250, 500


class MLflowRecorder(Recorder):
    """One run of MLflow."""

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        models: bool = False,
    ) -> None:
        self._tracking_uri = tracking_uri
        self._experiment = experiment
        self._run_id = run_id
        self._parent_id: str | None = None
        self._tags = dict(tags or {})
        self._logs_models = models
        self._job = JobIdentity(key="")
        self._hparams: Mapping[str, object] | None = None
        self._is_open = False
        self._is_uncertain = False
        self._metrics: list[Metric] = []
        self._steps: dict[str, int] = {}
        """The newest step of each metric that MLflow has."""
        self._names = MetricNames()
        self._work: list[Callable[[str], None]] = []
        """What else is to be done, in order."""

    @cached_property
    def _client(self) -> MlflowClient:
        """Opened where a failure is tried again: two processes that create one database get in each other's way."""
        return MlflowClient(self._tracking_uri)

    def identify(self, job: JobIdentity) -> None:
        """The tags that the run is found by."""
        self._job = job

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """The hyperparameters become parameters, nested ones by dotted names."""
        self._hparams = hparams

    def log_metrics(self, row: MetricRow) -> None:
        """One point per metric, with the number of batches as its step."""
        for name, value in row.metrics.items():
            key = self._names.spelled(f"{row.group}/{name}" if row.group else name)
            self._metrics.append(Metric(key, value, int(row.time_s * 1000), row.batches))

    def log_checkpoint(self, row: CheckpointRow) -> None:
        """Tag the run with the newest checkpoint; log it as a model when the run ends, if it is to be."""
        tags = {"trek.checkpoint": row.uuid, "trek.checkpoint.path": row.path[:_MAX_VALUE]}
        self._work.append(lambda run_id: self._set_tags(run_id, tags))
        self._checkpoint = row.path

    _checkpoint: str = ""

    def log_artifact(self, row: ArtifactRow) -> None:
        """Upload the file."""
        folder = row.name.rpartition("/")[0] or None
        self._work.append(lambda run_id: self._upload(run_id, Path(row.path), row.name, folder))

    def end(self, state: EndState) -> None:
        """Set the status, of the experiment's run too when it was the last of its trials that ran."""
        if self._logs_models and self._checkpoint and not is_remote(self._checkpoint):
            self._work.append(lambda run_id: self._log_model(run_id, Path(self._checkpoint)))
        self._work.append(lambda run_id: self._set_status(run_id, _STATUS[state]))

    def flush(self) -> None:
        """Open the run if necessary, then send metrics, then everything else."""
        if self._hparams is None:
            return
        if not self._is_open:
            self._open()
        if self._is_uncertain:
            self._learn_steps(self._client.get_run(self._run_id))
        self._is_uncertain = True
        self._send_metrics()
        while self._work:
            self._work[0](self._run_id or "")
            del self._work[0]
        self._is_uncertain = False

    def close(self) -> None:
        """Send what is left."""
        self.flush()

    # -- the run

    def _open(self) -> None:
        found = self._client.get_run(self._run_id) if self._run_id is not None else self._find_run()
        self._run_id = found.info.run_id
        self._parent_id = found.data.tags.get(PARENT_TAG)
        self._learn_steps(found)
        if found.info.status != "RUNNING":
            self._client.update_run(self._run_id, status="RUNNING")
        self._send_params(known=found.data.params)
        self._set_tags(self._run_id, self._tags)
        self._is_open = True

    def _find_run(self) -> Run:
        experiment_id = self._experiment_id()
        parent = self._open_parent(experiment_id) if self._job.experiment_key else None
        nested = {PARENT_TAG: parent} if parent else {}
        ids = {"trek.experiment_id": self._job.experiment_id, "trek.trial_id": self._job.trial_id}
        tags = {JOB_TAG: self._job.key, **nested, **{name: str(value) for name, value in ids.items() if value}}
        return self._first(experiment_id, JOB_TAG, self._job.key) or self._client.create_run(
            experiment_id, run_name=self._job.name, tags=tags
        )

    def _open_parent(self, experiment_id: str) -> str:
        """The run of the experiment; of several that trials made at the same moment, the first."""
        tag, key = EXPERIMENT_TAG, self._job.experiment_key
        if self._first(experiment_id, tag, key) is None:
            made = self._client.create_run(experiment_id, run_name=self._job.experiment_name or None, tags={tag: key})
            first = self._first(experiment_id, tag, key)
            if first is not None and first.info.run_id != made.info.run_id:
                self._client.delete_run(made.info.run_id)
        found = self._first(experiment_id, tag, key)
        assert found is not None
        if found.info.status != "RUNNING":
            self._client.update_run(found.info.run_id, status="RUNNING")
        return str(found.info.run_id)

    def _first(self, experiment_id: str, tag: str, value: str) -> Run | None:
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        found = self._client.search_runs([experiment_id], f"tags.`{tag}` = '{value}'", max_results=1, order_by=order)
        return found[0] if found else None

    def _experiment_id(self) -> str:
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or self._job.experiment_name or "trek"
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except Exception:  # another trial may have created it at the same moment
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    # -- what is sent

    def _learn_steps(self, run: Run) -> None:
        self._steps = {metric.key: int(metric.step) for metric in run.data._metric_objs}

    def _send_metrics(self) -> None:
        while self._metrics:
            part = self._metrics[:_MAX_METRICS]
            new = [one for one in part if one.step > self._steps.get(one.key, -1)]
            if new:
                self._client.log_batch(self._run_id, metrics=new)
            self._steps |= {one.key: int(one.step) for one in new}
            del self._metrics[: len(part)]

    def _send_params(self, *, known: Mapping[str, str]) -> None:
        """MLflow refuses to change a parameter, so a resumed run only adds new ones."""
        flat = flat_params(self._hparams or {})
        new = [Param(key, value) for key, value in flat.items() if key not in known]
        for start in range(0, len(new), _MAX_PARAMS):
            self._client.log_batch(self._run_id, params=new[start : start + _MAX_PARAMS])

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        if tags:
            self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])

    def _upload(self, run_id: str, path: Path, name: str, folder: str | None) -> None:
        """By the artifact's name, whatever the stored file is called."""
        with tempfile.TemporaryDirectory() as place:
            link = Path(place) / name.rpartition("/")[2]
            link.symlink_to(path)
            self._client.log_artifact(run_id, str(link), folder)

    def _log_model(self, run_id: str, checkpoint: Path) -> None:
        import mlflow.pyfunc

        with tempfile.TemporaryDirectory() as place:
            model = Path(place) / "model"
            mlflow.pyfunc.save_model(
                str(model),
                loader_module="trek.integrations.mlflow_model",
                data_path=str(checkpoint),
                pip_requirements=[f"{DISTRIBUTION}=={__version__}"],
            )
            self._client.log_artifacts(run_id, str(model), "model")

    def _set_status(self, run_id: str, status: str) -> None:
        self._client.set_terminated(run_id, status=status, end_time=int(time.time() * 1000))
        if self._parent_id is not None and not self._has_running_trial(self._parent_id):
            self._client.set_terminated(self._parent_id, status="FINISHED")

    def _has_running_trial(self, parent: str) -> bool:
        query = f"tags.`{PARENT_TAG}` = '{parent}' and attributes.status = 'RUNNING'"
        experiment_id = self._client.get_run(parent).info.experiment_id
        return bool(self._client.search_runs([experiment_id], query, max_results=1))


class MetricNames:
    """Names of metrics as MLflow allows them; two that would get the same spelling stay apart."""

    def __init__(self) -> None:
        self._spelled: dict[str, str] = {}

    def spelled(self, name: str) -> str:
        """`name`, with `_` for what is not allowed."""
        if name not in self._spelled:
            plain = allowed_name(name)
            taken = plain in self._spelled.values()
            self._spelled[name] = f"{plain[: _MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}" if taken else plain
        return self._spelled[name]


def allowed_name(name: str) -> str:
    """`name`, with `_` for characters and parts of paths that MLflow refuses."""
    parts = re.sub(r"[^/\w.\- :]", "_", name).split("/")
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)[:_MAX_NAME]


def flat_params(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Hyperparameters by dotted names, as text."""
    flat: dict[str, str] = {}
    for name, value in hparams.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= flat_params(value, f"{key}.")
        else:
            flat[allowed_name(key)] = str(value)[:_MAX_VALUE]
    return flat
