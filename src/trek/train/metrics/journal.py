"""Journal: the record of a run. Sums metrics, keeps the table of epochs, and sends reports to the loggers.

Metrics are reported periodically, so that the loop does not sync with the device or the other ranks on every batch.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from trek.strategies import Strategy
from trek.train.loggers.base import ArtifactRow, CheckpointRow, EndState, JobIdentity, Logger, MetricRow
from trek.train.loop.position import Position
from trek.train.metrics.collectors import collector_state, merge_collector_state
from trek.train.metrics.epoch_table import EpochTable
from trek.train.metrics.loss_watch import LossWatch, OnNaN
from trek.train.metrics.metric_sums import MetricSums, Reduction
from trek.train.metrics.reducers import NamedReducer, reduce_all
from trek.train.metrics.scalars import Scalars


class Journal:
    """The record of one run, on one rank."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        loggers: Sequence[Logger] = (),
        open_more: Callable[[], Sequence[Logger]] = list,
        on_nan: OnNaN = "warn",
        find_job: Callable[[], JobIdentity] = lambda: JobIdentity(key=uuid.uuid4().hex),
    ) -> None:
        """`open_more` makes loggers when this rank becomes the leader, which uses them before the others.

        `find_job` is called when they are started, and says which job the run belongs to.
        """
        self._find_job = find_job
        self._loggers = list(loggers)
        self._open_more: Callable[[], Sequence[Logger]] | None = open_more
        self._opening: tuple[str, Mapping[str, Any]] = ("run", {})
        self.table = EpochTable()
        self.on_report: Callable[[dict[str, float]], None] = lambda metrics: None
        """Called on every rank with each report of training metrics."""
        self.reducers: list[NamedReducer] = []
        """Custom metrics of the user."""
        self._validated: tuple[int, dict[str, float]] = (-1, {})
        self._has_started = False
        self._strategy = strategy
        self._pending: list[tuple[Mapping[str, Any], int]] | None = None
        """Metrics of batches that may have to be trained again; None if that never happens."""
        self.scalars = Scalars(is_telling=strategy.world.is_leader)
        """Which metrics are reported."""
        self._training = MetricSums(self.scalars)
        self._validation = MetricSums(self.scalars)
        self._sums = self._training
        self._loss_watch = LossWatch(strategy, on_nan=on_nan)
        self._epoch_totals: dict[str, list[float]] = {}
        self._epoch_seconds = 0.0
        self._reported_records = 0
        self._since = time.perf_counter()
        self._validation_since = 0.0

    @property
    def loggers(self) -> list[Logger]:
        """The leader's; other ranks use none."""
        if not self._strategy.world.is_leader:
            return []
        if self._open_more is not None:
            opened, self._open_more = self._open_more(), None
            self._loggers = [*opened, *self._loggers]
        return self._loggers

    def add_logger(self, logger: Logger) -> None:
        """Use one more logger."""
        self._loggers.append(logger)

    def begin(self, *, name: str, hparams: Mapping[str, Any]) -> None:
        """Open the loggers. Without this call, and by a rank that becomes the leader, they are opened when needed."""
        self._opening = (name, hparams)
        self._start_loggers()

    def _start_loggers(self) -> None:
        if self._has_started or not self._strategy.world.is_leader:
            return
        self._has_started = True
        name, hparams = self._opening
        job = replace(self._find_job(), name=name)
        for logger in self.loggers:
            logger.identify(job)
            logger.start(name=name, hparams=hparams)

    @property
    def is_validating(self) -> bool:
        """Whether metrics logged now belong to a validation."""
        return self._sums is self._validation

    @property
    def reported_records(self) -> int:
        """Records whose metrics are in a report."""
        return self._reported_records

    def log(self, metrics: Mapping[str, Any], *, num_samples: int) -> None:
        """Add the metrics of one batch to the current phase: training or validation."""
        if self._pending is not None and not self.is_validating:
            self._pending.append((metrics, num_samples))
        else:
            self._sums.add(metrics, num_samples=num_samples)

    def follow_ranks(self) -> None:
        """The ranks are others now: agree anew on what is reported."""
        self._training.forget_names()
        self._validation.forget_names()

    @property
    def has_told_nan(self) -> bool:
        """Whether a loss that is not a number was told of."""
        return self._loss_watch.has_told

    @has_told_nan.setter
    def has_told_nan(self, value: bool) -> None:
        self._loss_watch.has_told = value

    def hold_batches(self) -> None:
        """From now on, metrics of training batches count once `keep_batches` is called."""
        self._pending = []

    def keep_batches(self) -> None:
        """The batches since the last call are trained."""
        for metrics, num_samples in self._pending or ():
            self._training.add(metrics, num_samples=num_samples)
        self.drop_batches()

    def drop_batches(self) -> None:
        """The batches since the last `keep_batches` are trained again."""
        if self._pending:
            self._pending.clear()

    def leave_validation(self) -> None:
        """Leave a validation without a result."""
        self._validation.clear()
        self._sums = self._training
        self._since = time.perf_counter()

    def discard_batch(self) -> AbstractContextManager[None]:
        """Around a batch that must not count: restores the state of metric objects and reducers afterwards."""
        return self._sums.discard_batch(others=[named.reducer for named in self.reducers])

    def begin_training(self) -> None:
        """Start measuring the training time."""
        self._since = time.perf_counter()

    def report(
        self,
        position: Position,
        *,
        wait_s: float = 0.0,
        learning_rate: float | None = None,
    ) -> dict[str, float]:
        """Reduce the training metrics since the last report, and log them. Called on all ranks together."""
        values, metrics, records = {}, {}, position.records - self._reported_records
        if records:
            values = self._training.added()
            metrics = self._training.reduce(self._strategy, clears=False)
            metrics |= self._reduce_custom(is_training=True)
            self._training.clear()  # now that no rank can be lost in between
        duration = time.perf_counter() - self._since
        self._since = time.perf_counter()
        self._reported_records = position.records
        self._epoch_seconds += duration
        if not records:
            return {}
        for name, value in metrics.items():
            total = self._epoch_totals.setdefault(name, [0.0, 0.0])
            total[0] += value * records
            total[1] += records
        self.on_report(metrics)
        self._log_row("training", position, metrics, duration_s=duration)
        pace = {"records_per_s": records / duration, "data_wait": min(1.0, wait_s / duration)}
        if learning_rate is not None:
            pace["learning_rate"] = learning_rate
        if self._strategy.world.is_leader:
            pace |= self._strategy.figures()
        self._log_row("system", position, pace, duration_s=duration)
        self._loss_watch.check(metrics, values, position)
        return metrics

    def end_epoch(self, epoch: int) -> None:
        """Add the epoch's row to the table; call `report` first."""
        means = {name: total / records for name, (total, records) in self._epoch_totals.items()}
        self.table.end_epoch(epoch, means, duration_s=self._epoch_seconds)
        self._epoch_totals = {}
        self._epoch_seconds = 0.0

    def begin_validation(self) -> None:
        """Metrics logged from now on belong to a validation."""
        self._epoch_seconds += time.perf_counter() - self._since
        self._validation_since = time.perf_counter()
        self._validation.clear()
        self._sums = self._validation

    def end_validation(
        self,
        position: Position,
        *,
        how: Mapping[str, Reduction] | None = None,
        extra: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Reduce and log the validation metrics, or log `extra`, which already covers all data."""
        custom = self._reduce_custom(is_training=False) if extra is None else extra
        metrics = {**self._validation.reduce(self._strategy, how=how), **custom}
        duration = time.perf_counter() - self._validation_since
        self._sums = self._training
        self._since = time.perf_counter()
        if metrics:
            self._validated = (position.batches, metrics)
            self._log_row("validation", position, metrics, duration_s=duration)
            at_epoch_end = position.epoch_batch == 0 and position.epoch > 0
            if at_epoch_end:
                self.table.add_validation(position.epoch - 1, metrics, duration_s=duration)
        return metrics

    def logged_names(self) -> list[str]:
        """Names of the metrics logged in the current phase since its last report."""
        return self._sums.names()

    def metric_objects(self) -> list[Any]:
        """The torchmetrics objects logged since the last report and in the last validation."""
        return [*self._training.objects(), *self._validation.objects()]

    def metrics_at(self, position: Position) -> dict[str, float]:
        """The validation metrics at exactly this position; empty if there was no validation here."""
        batches, metrics = self._validated
        return dict(metrics) if batches == position.batches else {}

    def log_progress(self, fraction: float) -> None:
        """Log the share of the run that is done."""
        self._start_loggers()
        for logger in self.loggers:
            logger.log_progress(fraction)

    def log_checkpoint(self, row: CheckpointRow) -> None:
        """Log a checkpoint that has been written."""
        self._start_loggers()
        for logger in self.loggers:
            logger.log_checkpoint(row)

    def log_checkpoint_deleted(self, uuid: str) -> None:
        """Log that a checkpoint was deleted."""
        for logger in self.loggers:
            logger.log_checkpoint_deleted(uuid)

    def log_artifact(self, row: ArtifactRow) -> None:
        """Log a file that has been stored with the run."""
        self._start_loggers()
        for logger in self.loggers:
            logger.log_artifact(row)

    def end(self, state: EndState) -> None:
        """Tell the loggers how the run ended, if this rank is the leader and has used them."""
        if self._has_started:
            for logger in self.loggers:
                logger.end(state)

    def close(self) -> None:
        """Close the loggers, of a rank that is or was the leader."""
        is_used = self._has_started or self._strategy.world.is_leader
        for logger in self._loggers if is_used else ():
            logger.close()

    def state_dict(self) -> dict[str, Any]:
        """The state that is the same on every rank."""
        return {
            "table": self.table.state_dict(),
            "validated": list(self._validated),
            "epoch_totals": {name: list(total) for name, total in self._epoch_totals.items()},
            "epoch_seconds": self._epoch_seconds,
            "reported_records": self._reported_records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.table.load_state_dict(state["table"])
        batches, metrics = state["validated"]
        self._validated = (batches, dict(metrics))
        self._epoch_totals = {name: list(total) for name, total in state["epoch_totals"].items()}
        self._epoch_seconds = state["epoch_seconds"]
        self._reported_records = state["reported_records"]
        self._loss_watch.forget_position()

    def rank_state(self) -> dict[str, Any]:
        """Sums of this rank that have not been reported yet."""
        reducers = [collector_state(named.reducer) for named in self.reducers]
        return {"sums": self._training.state_dict(), "reducers": reducers}

    def load_rank_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore the sums of one rank, or of several together."""
        self._training.load_state_dicts([state["sums"] for state in states])
        for state in states:
            for named, saved in zip(self.reducers, state["reducers"], strict=False):
                if saved is not None:
                    merge_collector_state(named.name or "", named.reducer, saved)

    def _reduce_custom(self, *, is_training: bool) -> dict[str, float]:
        active = [r for r in self.reducers if (r.for_training if is_training else r.for_validation)]
        return reduce_all(active, self._strategy, scalars=self.scalars)

    def _log_row(self, group: str, position: Position, metrics: Mapping[str, float], *, duration_s: float) -> None:
        if not self.loggers:
            return
        self._start_loggers()
        row = MetricRow(
            group=group,
            batches=position.batches,
            epoch=position.epoch,
            metrics=metrics,
            time_s=time.time(),
            duration_s=duration_s,
        )
        for logger in self.loggers:
            logger.log_metrics(row)
