"""MLflowRun: a run of MLflow that a script records to by its own names, off its thread. Needs the `mlflow` extra.

It is an MLflowLogger: given to a Traveler, the same run also has what Trek logs; alone, the script starts and ends it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.integrations.mlflow import MLflowLogger, checked_tags
from trek.train.loggers import ArtifactRow, EndState, JobIdentity, MetricRow

_STATES: dict[str, EndState] = {"FINISHED": "completed", "FAILED": "failed", "KILLED": "killed", "SCHEDULED": "paused"}


class MLflowRun(MLflowLogger):
    """Starts with the first thing that is recorded; a server that is slow or gone does not concern the script.

    `settings` are those of the logger: `tracking_uri`, `experiment`, `tags`, … Runs with the same `parent`, a name of
    your choice, are nested in one run of that name.
    """

    def __init__(
        self, *, name: str = "run", params: Mapping[str, Any] | None = None, parent: str = "", **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._params = dict(params or {})
        self.key = uuid.uuid4().hex
        """The run's tag `trek.job`."""
        self._name = name
        self._parent = parent
        self._steps: dict[str, int] = {}
        self.is_started = False
        self._has_ended = False

    def identify(self, job: JobIdentity) -> None:
        """Of a Traveler's job, the run is found again when the job is resumed."""
        self.key = job.key
        key, name = self._parent or job.experiment_key, self._parent or job.experiment_name
        super().identify(replace(job, experiment_key=key, experiment_name=name))

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """With its own parameters as well."""
        self.is_started = True
        super().start(name=name, hparams={**hparams, **self._params})

    def describe(self, *, params: Mapping[str, Any] | None = None, tags: Mapping[str, str] | None = None) -> None:
        """Add parameters and tags, before anything is recorded."""
        if self.is_started:
            raise InputError("the run has started. Add its parameters and tags before anything is recorded.")
        self._params |= dict(params or {})
        self._settings["tags"] = checked_tags({**self._settings["tags"], **(tags or {})})

    def begin(self) -> None:
        """Start the run, unless it has started."""
        if not self.is_started:
            self.identify(JobIdentity(key=self.key, name=self._name))
            self.start(name=self._name, hparams={})

    def log_metric(self, name: str, value: float, *, step: int | None = None) -> None:
        """Record a point of the metric `name`, by default at the step after its last. A step is recorded once."""
        self.begin()
        at = self._steps.get(name, -1) + 1 if step is None else step
        self._steps[name] = at
        self.log_metrics(MetricRow("", at, 0.0, {name: float(value)}, time.time()))

    def log_file(self, path: Path | str) -> None:
        """Upload a file, by its own name. It must stay where it is until the run has ended."""
        self.begin()
        file = Path(path).resolve()
        if not file.is_file():
            raise InputError(f"artifact {str(file)!r} not found. Pass the path of a file.")
        self.log_artifact(ArtifactRow(file.name, str(file), file.stat().st_size, 0, time.time()))

    def set_status(self, status: str) -> None:
        """End the run with one of MLflow's states: FINISHED, FAILED, KILLED or SCHEDULED."""
        if status not in _STATES:
            raise InputError(f"status must be one of {', '.join(_STATES)}, got {status!r}.")
        self.begin()
        self.end(_STATES[status])

    def end(self, state: EndState) -> None:
        """Set the status, which the first call decides."""
        if not self._has_ended:
            self._has_ended = True
            super().end(state)

    def finish(self) -> None:
        """End the run, FINISHED unless it was told otherwise, and wait until it is recorded, for a limited time."""
        self.begin()
        self.end("completed")
        self.close()
