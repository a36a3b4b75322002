"""Position: how far a run has come, in words that mean the same on any number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from trek.errors import InputError


@dataclass
class Position:
    """Counts of what has been taken for training."""

    epoch: int = 0
    """The epoch being trained, from 0."""
    epoch_batch: int = 0
    """Batches of it taken."""
    epoch_records: int = 0
    """Records in those."""
    batches: int = 0
    records: int = 0
    group_batches: int = 0
    """Batches taken of the group whose gradients are being accumulated."""
    group_records: int = 0
    """Records in those."""

    def take(self, *, records: int, ends_group: bool) -> None:
        """One more batch is in the caller's hands."""
        self.epoch_batch += 1
        self.epoch_records += records
        self.batches += 1
        self.records += records
        self.group_batches = 0 if ends_group else self.group_batches + 1
        self.group_records = 0 if ends_group else self.group_records + records

    def end_epoch(self) -> None:
        """The next epoch begins."""
        self.epoch += 1
        self.epoch_batch = 0
        self.epoch_records = 0

    def find_batch(self, sizes: Sequence[int] | None) -> None:
        """Stand at the same record of the epoch in batches of `sizes`, which may not be those it was counted in.

        None where only reading tells the sizes; the count of batches is then all there is to go by.
        """
        if sizes is None:
            return
        starts = list(accumulate(sizes, initial=0))
        if self.epoch_records not in starts:
            raise InputError(
                f"this run stands at record {self.epoch_records} of epoch {self.epoch + 1}, where no global batch of "
                f"{sizes[0]} begins. Resume with the global batch size it was saved with, or from a checkpoint at the "
                "end of an epoch."
            )
        self.epoch_batch = starts.index(self.epoch_records)

    def state_dict(self) -> dict[str, Any]:
        """All counts."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take `state_dict` back."""
        for name, count in state.items():
            setattr(self, name, int(count))
