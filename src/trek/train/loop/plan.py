"""Plan: the length of a run, and what is due at which position. Pure arithmetic.

It alone interprets lengths and periods, so that no two parts can disagree about the end of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trek.data.loaders import Loader
from trek.train.length import Length
from trek.train.loop.position import Position
from trek.train.loop.schedule import Occasions, Schedule
from trek.train.settings import TrainSettings

Action = Literal["report", "validate", "save"]


@dataclass(frozen=True)
class Plan:
    """The schedules of one run."""

    length: Schedule
    reports: Schedule
    validations: Occasions
    checkpoints: Schedule
    epoch_batches: int | None = None
    """Number of batches in an epoch, if known."""

    @classmethod
    def of(cls, settings: TrainSettings, loader: Loader | None = None, *, length: Length | None = None) -> Plan:
        """The plan of a run of `length`, by default that of the settings, for the data of `loader`.

        Before the data is known, a period in records is never due, and a length in records never reached.
        """

        def schedule(period: Length | None) -> Schedule:
            return Schedule.of(period, loader, records_per_epoch=settings.records_per_epoch)

        return cls(
            length=schedule(length or settings.max_length),
            reports=Schedule(batches=settings.report_period),
            validations=Occasions(
                schedule(_validation_period(settings)), tuple(map(schedule, settings.validation_lengths))
            ),
            checkpoints=schedule(settings.checkpoint_period),
            epoch_batches=loader.num_batches if loader is not None else None,
        )

    def due(self, position: Position, *, at_end_of: Literal["batch", "epoch"]) -> tuple[Action, ...]:
        """What all ranks do at `position`, in this order: report, validate, save.

        After the last batch of an epoch or of the run, validation and checkpoint belong to the end of the epoch.
        """
        if at_end_of == "epoch":
            return self._due_together(position) if position.epoch_batch == 0 else ()
        report: tuple[Action, ...] = ("report",) if self.reports.is_due(position) else ()
        return report if self.is_end(position) else report + self._due_together(position)

    def is_end(self, position: Position) -> bool:
        """Whether the last batch of an epoch or of the run was trained."""
        return position.epoch_batch == self.epoch_batches or self.is_over(position)

    def _due_together(self, position: Position) -> tuple[Action, ...]:
        validate: tuple[Action, ...] = ("validate",) if self.validations.is_due(position) else ()
        return (*validate, "save") if self.checkpoints.is_due(position) else validate

    def is_over(self, position: Position) -> bool:
        """Whether the run has reached its end."""
        return self.length.is_reached(position)

    def progress(self, position: Position) -> float | None:
        """The share of the run that is done; None if the end is unknown."""
        if self.length == Schedule():
            return None
        return self.length.progress(position, epoch_batches=self.epoch_batches)

    def epoch_label(self, position: Position) -> str:
        """The current epoch as people count it, such as `epoch: 1/3`."""
        last = self.length.epochs
        if last is None and self.length.batches is not None and self.epoch_batches:
            last = -(-self.length.batches // self.epoch_batches)
        return f"epoch: {position.epoch + 1}" + (f"/{last}" if last else "")

    def epoch_total(self, position: Position) -> int | None:
        """The number of batches of the current epoch that belong to the run; None if that is known only by reading."""
        if self.length.batches is None:
            return self.epoch_batches
        left = position.epoch_batch + self.length.batches - position.batches
        return left if self.epoch_batches is None else min(left, self.epoch_batches)

    def next_batch(self, position: Position) -> float:
        """The number of batches after which something is due next in the middle of an epoch."""
        return min(
            self.reports.next_batch(position),
            self.validations.next_batch(position),
            self.checkpoints.next_batch(position),
        )


def _validation_period(settings: TrainSettings) -> Length | None:
    if settings.validation_period is None and not settings.validation_lengths:
        return Length(1, "epochs")
    return settings.validation_period
