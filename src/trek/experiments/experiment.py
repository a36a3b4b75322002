"""Experiment: an experiment as a Python object, which uses the same client as the commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trek.client.client import Client
from trek.client.models import ENDED, ExperimentDetails, LogLine, MetricPoint, TrialRecord
from trek.errors import InputError, NotFound, OutsideError, TrainingError
from trek.experiments.creation import connect_once, create_experiment
from trek.experiments.hparams import flatten

if TYPE_CHECKING:
    import pandas as pd

    from trek.experiments.checkpoint import Checkpoint

POLL_S = 0.25


class Experiment:
    """An experiment of a config (a mapping, or the path of a YAML file) and a model folder; it starts at once.

    `overrides` set keys of the config by their dotted names, `template` names a template of the control plane that the
    config is merged over, and `labels` are added to the config's. Settings without effect cause a warning on stderr.
    Without a client, the control plane is that of the commands: TREK_MASTER, else the one on this machine.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | Path | str,
        folder: Path | str = ".",
        *,
        overrides: Mapping[str, Any] | None = None,
        template: str | None = None,
        labels: Sequence[str] = (),
        client: Client | None = None,
    ) -> None:
        connect = connect_once(lambda engine: client or Client(engine=engine))
        created = create_experiment(
            config if isinstance(config, Mapping) else Path(config),
            Path(folder),
            connect=connect,
            overrides=overrides,
            template=template,
            labels=labels,
        )
        self._client = connect()
        self.id = created.id
        for warning in created.warnings:
            print(f"trek: warning: {warning}", file=sys.stderr, flush=True)

    @classmethod
    def get(cls, experiment_id: int, *, client: Client | None = None) -> Self:
        """The experiment with this id."""
        found = cls.__new__(cls)
        found._client = client or Client()
        found.id = found._client.experiment(experiment_id).id
        return found

    def __repr__(self) -> str:
        return f"Experiment({self.id})"

    @property
    def details(self) -> ExperimentDetails:
        """Its current state, progress, config and trials."""
        return self._client.experiment(self.id)

    @property
    def state(self) -> str:
        """queued, running, paused, completed, errored or killed."""
        return self.details.state

    @property
    def trials(self) -> list[TrialRecord]:
        """Its trials, in the order they were created."""
        return self.details.trials

    def wait(self, *, timeout_s: float | None = None) -> Self:
        """Return when it has completed or is paused; raise the error it ended with otherwise."""
        raise_for_end(wait_for_end(self._client, self.id, timeout_s=timeout_s))
        return self

    def kill(self) -> None:
        """Kill it."""
        self._client.kill_experiment(self.id)

    def pause(self) -> None:
        """Pause it: running trials save a checkpoint and release their slots."""
        self._client.pause_experiment(self.id)

    def activate(self) -> None:
        """Resume it after a pause."""
        self._client.activate_experiment(self.id)

    def logs(self, *, tail: int = 1000) -> list[LogLine]:
        """The last log lines of its trials."""
        return self._client.experiment_logs(self.id, tail=tail)

    def top_k(self, k: int) -> list[TrialRecord]:
        """The `k` trials with the best metric, the best first."""
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}.")
        details = self.details
        measured = [trial for trial in details.trials if trial.best_metric is not None]
        sign = 1 if details.smaller_is_better else -1
        return sorted(measured, key=lambda trial: (sign * (trial.best_metric or 0.0), trial.id))[:k]

    def best_checkpoint(self) -> Checkpoint:
        """The checkpoint with the best metric over all trials; downloaded if it is on another machine."""
        from trek.experiments.checkpoint import Checkpoint

        return Checkpoint(self._client.best_checkpoint(self.id).uuid, client=self._client)

    def checkpoint(self, trial_id: int | None = None) -> Checkpoint:
        """The experiment's best checkpoint, or the newest one of a trial; downloaded if it is on another machine."""
        from trek.experiments.checkpoint import Checkpoint

        if trial_id is None:
            return self.best_checkpoint()
        uuid = self._client.trial(trial_id).checkpoint
        if uuid is None:
            raise NotFound(f"trial {trial_id} has no checkpoint. See checkpoint_policy in its experiment's config.")
        return Checkpoint(uuid, client=self._client)

    def to_pandas(self, *, group: str | None = None) -> pd.DataFrame:
        """Every reported row of every trial: trial, group, batches, epoch, time_s, metrics, hyperparameters.

        Nested hyperparameters have dotted names: `hparams.optimizer.lr`. A metric with the name of another column, such
        as `batches`, is in `metrics.batches`.
        """
        import pandas as pd

        rows = [
            _table_row(trial, point)
            for trial in self.trials
            for point in self._client.trial_metrics(trial.id, group=group)
        ]
        return pd.DataFrame(rows, columns=None if rows else _FIXED_COLUMNS)


_FIXED_COLUMNS = ["trial", "group", "batches", "epoch", "time_s"]


def _table_row(trial: TrialRecord, point: MetricPoint) -> dict[str, Any]:
    fixed = dict(zip(_FIXED_COLUMNS, (trial.id, point.group, point.batches, point.epoch, point.time_s), strict=True))
    metrics = {f"metrics.{name}" if name in fixed else name: value for name, value in point.metrics.items()}
    return {**fixed, **metrics, **flatten(trial.hparams, prefix="hparams.")}


def wait_for_end(client: Client, experiment_id: int, *, timeout_s: float | None) -> ExperimentDetails:
    """The experiment's details once it has ended or is paused; OutsideError if that takes longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s if timeout_s is not None else None
    while (details := client.experiment(experiment_id)).state not in (*ENDED, "paused"):
        if deadline is not None and time.monotonic() > deadline:
            raise OutsideError(f"experiment {experiment_id} is still {details.state} after {timeout_s:g} s.")
        time.sleep(POLL_S)
    return details


def raise_for_end(details: ExperimentDetails) -> None:
    """Raise the error that the experiment ended with; nothing if it completed or is paused."""
    if details.state == "killed":
        raise TrainingError(f"experiment {details.id} was killed.")
    if details.state != "errored":
        return
    trial = next((one for one in details.trials if one.error == details.error), None)
    message = f"experiment {details.id}, trial {trial.id if trial else '-'}: {details.error}"
    if details.failure in ("input", "rejected"):
        raise InputError(message)
    if details.failure == "outside":
        raise OutsideError(message)
    raise TrainingError(message, traceback_text=trial.traceback if trial is not None else "")
