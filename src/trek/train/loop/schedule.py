"""Schedule and Occasions: at which positions something is due. Pure arithmetic with lengths and the data's size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trek.data.loaders import Loader
from trek.errors import InputError
from trek.train.length import Length
from trek.train.loop.position import Position


@dataclass(frozen=True)
class Schedule:
    """Due after every `batches` batches, or every `epochs` epochs; with neither, never."""

    batches: int | None = None
    epochs: int | None = None

    @classmethod
    def of(cls, period: Length | None, loader: Loader | None, *, records_per_epoch: int | None = None) -> Schedule:
        """The schedule of `period` for the data of `loader`. With `records_per_epoch`, an epoch is that many records.

        Without a loader, a period in records is never due.
        """
        if period is None:
            return cls()
        if period.unit == "batches":
            return cls(batches=period.count)
        if period.unit == "epochs" and not records_per_epoch:
            return cls(epochs=period.count)
        if loader is None:
            return cls()
        if loader.batch_records is None:
            raise InputError(f"a length of {period} requires data with a known batch size. Give the length in batches.")
        epoch_batches = math.ceil((records_per_epoch or 0) / loader.batch_records)
        return cls(batches=period.to_batches(batch_records=loader.batch_records, epoch_batches=epoch_batches))

    def is_due(self, position: Position) -> bool:
        """Whether it is due at `position`."""
        if self.batches is not None:
            return position.batches % self.batches == 0
        return self.epochs is not None and position.epoch_batch == 0 and position.epoch % self.epochs == 0

    def next_batch(self, position: Position) -> float:
        """The number of batches after which it is due next in the middle of an epoch; infinity for never."""
        return math.inf if self.batches is None else (position.batches // self.batches + 1) * self.batches

    def is_exact(self, position: Position) -> bool:
        """Whether `position` is exactly the end of a run of this length."""
        if self.batches is not None:
            return position.batches == self.batches
        return self.epochs is not None and position.epoch_batch == 0 and position.epoch == self.epochs

    def is_reached(self, position: Position) -> bool:
        """Whether a run of this length is over."""
        if self.batches is not None:
            return position.batches >= self.batches
        return self.epochs is not None and position.epoch >= self.epochs

    def progress(self, position: Position, *, epoch_batches: int | None) -> float:
        """The share of a run of this length that is done; counts only whole epochs if their length is unknown."""
        if self.batches is not None:
            return min(1.0, position.batches / self.batches)
        partial = position.epoch_batch / epoch_batches if epoch_batches else 0.0
        return min(1.0, (position.epoch + partial) / (self.epochs or 1))


@dataclass(frozen=True)
class Occasions:
    """Due after every period, and once at each of some lengths."""

    period: Schedule
    lengths: tuple[Schedule, ...] = ()

    def is_due(self, position: Position) -> bool:
        """Whether it is due at `position`."""
        return self.period.is_due(position) or any(length.is_exact(position) for length in self.lengths)

    def next_batch(self, position: Position) -> float:
        """The number of batches after which it is due next in the middle of an epoch; infinity for never."""
        ahead = (one.batches for one in self.lengths if one.batches is not None and one.batches > position.batches)
        return min(self.period.next_batch(position), *ahead, math.inf)
