"""Schedule: after which batches something is due. Pure arithmetic over lengths and the data's size."""

from __future__ import annotations

from dataclasses import dataclass

from trek.data.loaders import Loader
from trek.errors import InputError
from trek.train.length import Length


@dataclass(frozen=True)
class Schedule:
    """Due after every `every` batches; with None only when somebody says so."""

    every: int | None = None

    @classmethod
    def of(cls, period: Length | None, loader: Loader, *, records_per_epoch: int | None = None) -> Schedule:
        """`period` in batches of `loader`."""
        return cls(None if period is None else to_batches(period, loader, records_per_epoch=records_per_epoch))

    def is_due(self, batches: int) -> bool:
        """Whether it is due after `batches`."""
        return self.every is not None and batches % self.every == 0

    def next_after(self, batches: int) -> float:
        """The next number of batches after which it is due; infinity for never."""
        return float("inf") if self.every is None else (batches // self.every + 1) * self.every


def to_batches(length: Length, loader: Loader, *, records_per_epoch: int | None = None) -> int:
    """`length` in batches of `loader`, or an error that names what is missing."""
    if length.unit == "batches":
        return length.count
    if loader.batch_records is None and (length.unit == "records" or records_per_epoch):
        raise InputError(f"a length of {length} needs data with a known batch size. Give the length in batches.")
    epoch_batches = loader.num_batches
    if records_per_epoch and loader.batch_records:
        epoch_batches = -(-records_per_epoch // loader.batch_records)
    return length.to_batches(batch_records=loader.batch_records or 1, epoch_batches=epoch_batches)
