"""Position: how far a run has progressed, in counts that do not depend on the number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from trek.errors import InputError


@dataclass
class Position:
    """Counts of what has been read for training."""

    epoch: int = 0
    """The current epoch, from 0."""
    epoch_batch: int = 0
    """Number of its batches read."""
    epoch_records: int = 0
    """Number of records in them."""
    batches: int = 0
    records: int = 0
    group_batches: int = 0
    """Number of batches read of the group whose gradients are being accumulated."""
    group_records: int = 0
    """Number of records in them."""
    group_total: int = 0
    """Number of records that this group will have."""

    def take(self, *, records: int, group_total: int, ends_group: bool) -> None:
        """Count one more batch."""
        self.epoch_batch += 1
        self.epoch_records += records
        self.batches += 1
        self.records += records
        self.group_batches = 0 if ends_group else self.group_batches + 1
        self.group_records = 0 if ends_group else self.group_records + records
        self.group_total = 0 if ends_group else group_total

    def end_epoch(self) -> None:
        """Move to the start of the next epoch."""
        self.epoch += 1
        self.epoch_batch = 0
        self.epoch_records = 0

    def find_batch(self, sizes: Sequence[int] | None) -> None:
        """Set `epoch_batch` to the batch that starts at `epoch_records`, for batches of `sizes`.

        The batch size may have changed since the position was saved. If the sizes are unknown (None), the saved number
        of batches is used.
        """
        if sizes is None:
            return
        starts = list(accumulate(sizes, initial=0))
        if self.epoch_records not in starts:
            raise InputError(
                f"this run was saved at record {self.epoch_records} of epoch {self.epoch + 1}, where no global batch "
                f"of {sizes[0]} starts. Resume with the global batch size of the saved run, or from a checkpoint at "
                "the end of an epoch."
            )
        self.epoch_batch = starts.index(self.epoch_records)

    def state_dict(self) -> dict[str, Any]:
        """All counts."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        for name, count in state.items():
            setattr(self, name, int(count))
