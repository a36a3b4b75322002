"""WandbRecorder: writes a run in the offline format of Weights & Biases.

A resumed run has the same id, so that `wandb sync` adds it to what was there. Points cannot be replaced, so the newest
step of each metric is kept in a file beside them, and what comes again after a resume in the same folder is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb

from trek.train.loggers.base import ArtifactRow, CheckpointRow, EndState, JobIdentity, MetricRow
from trek.train.loggers.recorder import Recorder

STEP = "batches"


class WandbRecorder(Recorder):
    """One run of Weights & Biases."""

    def __init__(self, *, folder: str, project: str | None = None, tags: Sequence[str] = ()) -> None:
        self._folder = Path(folder)
        self._project = project
        self._tags = list(tags)
        self._job = JobIdentity(key="run")
        self._hparams: Mapping[str, object] | None = None
        self._run: Any = None
        self._rows: list[MetricRow] = []
        self._artifacts: list[ArtifactRow] = []
        self._summary: dict[str, Any] = {}
        self._exit_code: int | None = None
        self._steps: dict[str, int] = {}

    def identify(self, job: JobIdentity) -> None:
        """The run's id and group."""
        self._job = job

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """The hyperparameters become the run's config."""
        self._hparams = hparams

    def log_metrics(self, row: MetricRow) -> None:
        """One row of the run's history."""
        self._rows.append(row)

    def log_checkpoint(self, row: CheckpointRow) -> None:
        """The newest checkpoint is in the run's summary."""
        self._summary["trek_checkpoint"] = row.path

    def log_artifact(self, row: ArtifactRow) -> None:
        """The file is copied into the run."""
        self._artifacts.append(row)

    def end(self, state: EndState) -> None:
        """W&B knows exit codes; the state itself is in the summary."""
        self._summary["trek_state"] = state
        self._exit_code = int(state in ("failed", "killed"))

    def flush(self) -> None:
        """Write what was collected; a run that has ended is finished."""
        if self._hparams is None:
            return
        if self._run is None:
            self._open()
        for row in self._rows:
            self._log(row)
        self._rows.clear()
        for artifact in self._artifacts:
            self._copy(artifact)
        self._artifacts.clear()
        if self._summary:
            self._run.summary.update(self._summary)
            self._summary.clear()
        self._state_file.write_text(json.dumps(self._steps))

    def close(self) -> None:
        """Finish the run, and end W&B's own process."""
        self.flush()
        if self._run is not None:
            self._run.finish(exit_code=self._exit_code)
            wandb.teardown()
            self._run = self._hparams = None

    @property
    def _state_file(self) -> Path:
        return self._folder / "wandb" / "newest-steps.json"

    def _open(self) -> None:
        (self._folder / "wandb").mkdir(parents=True, exist_ok=True)
        if self._state_file.exists():
            self._steps = json.loads(self._state_file.read_text())
        job = self._job
        while list((self._folder / "wandb").glob(f"offline-run-{time.strftime('%Y%m%d_%H%M%S')}-*")):
            time.sleep(0.05)  # the folder of a run is named by the second in which it begins
        self._run = wandb.init(
            mode="offline",
            dir=str(self._folder),
            id=job.key,
            name=job.name,
            project=self._project or job.experiment_name or "trek",
            group=job.experiment_name or None,
            job_type="trial" if job.trial_id else None,
            tags=self._tags or None,
            config=dict(self._hparams or {}),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, save_code=False),
        )
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def _log(self, row: MetricRow) -> None:
        new = {f"{row.group}/{name}": value for name, value in row.metrics.items()}
        new = {key: value for key, value in new.items() if row.batches > self._steps.get(key, -1)}
        if new:
            self._run.log({**new, STEP: row.batches})
            self._steps |= dict.fromkeys(new, row.batches)

    def _copy(self, artifact: ArtifactRow) -> None:
        target = Path(self._run.dir) / artifact.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(artifact.path).read_bytes())
        self._run.save(str(target), base_path=self._run.dir, policy="now")
