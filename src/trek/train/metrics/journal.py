"""Journal: what a run writes down of itself. Sums metrics, keeps the table of epochs, tells the loggers.

Reporting is by period, so that the loop neither waits for the device nor talks to anyone on every batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from trek.strategies import Strategy
from trek.train.loggers.base import CheckpointRow, Logger, MetricRow
from trek.train.loop.position import Position
from trek.train.metrics.collectors import collected, give_back
from trek.train.metrics.epoch_table import EpochTable
from trek.train.metrics.metric_sums import MetricSums, Reduction
from trek.train.metrics.reducers import NamedReducer, reduce_all


class Journal:
    """The record of one run, on one rank."""

    def __init__(self, strategy: Strategy, *, loggers: Sequence[Logger] = ()) -> None:
        self.loggers = list(loggers) if strategy.world.is_leader else []
        self.table = EpochTable()
        self.on_report: Callable[[dict[str, float]], None] = lambda metrics: None
        """Called on every rank with each report of training metrics."""
        self.reducers: list[NamedReducer] = []
        """Metrics that are reduced in the user's own way."""
        self._validated: tuple[int, dict[str, float]] = (-1, {})
        self._has_begun = False
        self._strategy = strategy
        self._training = MetricSums()
        self._validation = MetricSums()
        self._sums = self._training
        self._epoch_totals: dict[str, list[float]] = {}
        self._epoch_seconds = 0.0
        self._reported_records = 0
        self._since = time.perf_counter()
        self._validation_since = 0.0

    def begin(self, *, name: str, hparams: Mapping[str, Any]) -> None:
        """The run begins: open the loggers. A run that nobody named begins with its first report."""
        self._has_begun = True
        for logger in self.loggers:
            logger.start(name=name, hparams=hparams)

    def log(self, metrics: Mapping[str, Any], *, num_samples: int) -> None:
        """Metrics of one batch of whatever is going on now: training or validation."""
        self._sums.add(metrics, num_samples=num_samples)

    def standing_in(self) -> AbstractContextManager[None]:
        """Around a batch that must not count: what collects metrics by itself is put back afterwards."""
        return self._sums.standing_in(others=[named.reducer for named in self.reducers])

    def begin_training(self) -> None:
        """Time starts to count for training."""
        self._since = time.perf_counter()

    def report(
        self,
        position: Position,
        *,
        wait_s: float = 0.0,
        learning_rate: float | None = None,
    ) -> dict[str, float]:
        """Reduce the training metrics since the last report, and tell them. Every rank calls this together."""
        duration = time.perf_counter() - self._since
        self._since = time.perf_counter()
        records = position.records - self._reported_records
        self._reported_records = position.records
        self._epoch_seconds += duration
        if not records:
            return {}
        metrics = {**self._training.reduce(self._strategy), **self._reduce_own(is_training=True)}
        for name, value in metrics.items():
            total = self._epoch_totals.setdefault(name, [0.0, 0.0])
            total[0] += value * records
            total[1] += records
        self.on_report(metrics)
        self._tell("training", position, metrics, duration_s=duration)
        pace = {"records_per_s": records / duration, "data_wait": min(1.0, wait_s / duration)}
        if learning_rate is not None:
            pace["learning_rate"] = learning_rate
        self._tell("system", position, pace, duration_s=duration)
        return metrics

    def end_epoch(self, epoch: int) -> None:
        """Write the epoch's row; call `report` before."""
        means = {name: total / records for name, (total, records) in self._epoch_totals.items()}
        self.table.end_epoch(epoch, means, duration_s=self._epoch_seconds)
        self._epoch_totals = {}
        self._epoch_seconds = 0.0

    def begin_validation(self) -> None:
        """What is logged now belongs to a validation."""
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
        """Reduce what was logged and tell it, or `extra`, which is of all data already."""
        own = self._reduce_own(is_training=False) if extra is None else extra
        metrics = {**self._validation.reduce(self._strategy, how=how), **own}
        duration = time.perf_counter() - self._validation_since
        self._sums = self._training
        self._since = time.perf_counter()
        if metrics:
            self._validated = (position.batches, metrics)
            self._tell("validation", position, metrics, duration_s=duration)
            at_epoch_end = position.epoch_batch == 0 and position.epoch > 0
            if at_epoch_end:
                self.table.add_validation(position.epoch - 1, metrics, duration_s=duration)
        return metrics

    def logged_names(self) -> list[str]:
        """Metrics logged since the last report of what is going on now."""
        return self._sums.names()

    def metrics_at(self, position: Position) -> dict[str, float]:
        """The validation metrics of this very point of the run; empty when none were taken here."""
        batches, metrics = self._validated
        return dict(metrics) if batches == position.batches else {}

    def tell(self, group: str, position: Position, metrics: Mapping[str, float]) -> None:
        """A report of the user's own."""
        self._tell(group, position, metrics, duration_s=0.0)

    def tell_progress(self, fraction: float) -> None:
        """How far the run has come."""
        for logger in self.loggers:
            logger.log_progress(fraction)

    def tell_checkpoint(self, row: CheckpointRow) -> None:
        """A checkpoint is whole."""
        for logger in self.loggers:
            logger.log_checkpoint(row)

    def tell_deleted(self, uuid: str) -> None:
        """A checkpoint was let go."""
        for logger in self.loggers:
            logger.log_checkpoint_deleted(uuid)

    def close(self) -> None:
        """Let the loggers flush."""
        for logger in self.loggers:
            logger.close()

    def state_dict(self) -> dict[str, Any]:
        """What is the same on every rank."""
        return {
            "table": self.table.state_dict(),
            "validated": list(self._validated),
            "epoch_totals": {name: list(total) for name, total in self._epoch_totals.items()},
            "epoch_seconds": self._epoch_seconds,
            "reported_records": self._reported_records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take `state_dict` back."""
        self.table.load_state_dict(state["table"])
        batches, metrics = state["validated"]
        self._validated = (batches, dict(metrics))
        self._epoch_totals = {name: list(total) for name, total in state["epoch_totals"].items()}
        self._epoch_seconds = state["epoch_seconds"]
        self._reported_records = state["reported_records"]

    def rank_state(self) -> dict[str, Any]:
        """Sums of this rank that nobody has been told yet."""
        return {"sums": self._training.state_dict(), "reducers": [collected(named.reducer) for named in self.reducers]}

    def load_rank_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take over the sums of the ranks whose states these are."""
        self._training.load_state_dicts([state["sums"] for state in states])
        for state in states:
            for named, content in zip(self.reducers, state["reducers"], strict=False):
                if content is not None:
                    give_back(named.name or "", named.reducer, content)

    def _reduce_own(self, *, is_training: bool) -> dict[str, float]:
        taking_part = [r for r in self.reducers if (r.for_training if is_training else r.for_validation)]
        return reduce_all(taking_part, self._strategy)

    def _tell(self, group: str, position: Position, metrics: Mapping[str, float], *, duration_s: float) -> None:
        if not self.loggers:
            return
        if not self._has_begun:
            self.begin(name="run", hparams={})
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
