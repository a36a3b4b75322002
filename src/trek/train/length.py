"""Length: how long to train, or how often to do something, in batches, records or epochs. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trek.errors import InputError

Unit = Literal["batches", "records", "epochs"]


@dataclass(frozen=True)
class Length:
    """A positive number of batches, records or epochs. A batch is one batch over all processes."""

    count: int
    unit: Unit

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise InputError(f"a length must be a whole number of {self.unit}, at least 1, got {self.count!r}.")

    def __str__(self) -> str:
        return (
            f"{self.count} {self.unit if self.count != 1 else self.unit.removesuffix('s').replace('batche', 'batch')}"
        )

    def to_batches(self, *, batch_records: int, epoch_batches: int | None) -> int:
        """The same length in batches, rounded up; a length in epochs needs `epoch_batches`."""
        if self.unit == "batches":
            return self.count
        if self.unit == "records":
            return -(-self.count // batch_records)
        if epoch_batches is None:
            raise InputError(
                f"a length of {self} requires training data of known length. Give the length in batches, or set "
                "records_per_epoch."
            )
        return self.count * epoch_batches


def batches(count: int) -> Length:
    """`count` global batches."""
    return Length(count, "batches")


def records(count: int) -> Length:
    """`count` records, over all processes."""
    return Length(count, "records")


def epochs(count: int) -> Length:
    """`count` passes over the training data."""
    return Length(count, "epochs")
