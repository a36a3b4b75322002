"""Order: which rows make up which global batch, and which of them belong to which rank.

Rows are named by their global index, so every rank has the same number of batches by construction, no row comes twice
and none is lost, and a position in the data (epoch, batch) means the same on any number of processes. The shuffle of
an epoch is the permutation that torch's DistributedSampler makes with the same seed, and ranks take every size-th row
as it does: a run can be checked against plain PyTorch row for row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from trek.errors import InputError

if TYPE_CHECKING:
    import torch

Tail = Literal["keep", "drop", "pad"]


@dataclass(frozen=True)
class Order:
    """The order of `num_rows` rows in global batches of `batch_size`.

    `tail` says what happens to a short last batch: "keep" it as it is (shares of ranks differ by one row at most),
    "drop" it, or "pad" it to full size with rows from the beginning of the epoch.
    """

    num_rows: int
    batch_size: int
    shuffle: bool = False
    seed: int = 0
    tail: Tail = "keep"

    def __post_init__(self) -> None:
        if self.num_rows < 1:
            raise InputError("the data has no rows.")
        if not hasattr(self.batch_size, "__index__"):
            raise InputError(f"batch size must be a whole number, got {self.batch_size!r}.")
        if self.batch_size < 1:
            raise InputError(f"batch size must be at least 1, got {self.batch_size}.")
        if self.tail not in get_args(Tail):
            raise InputError(f"tail must be one of {', '.join(get_args(Tail))}, got {self.tail!r}.")
        if self.tail == "drop" and self.num_rows < self.batch_size:
            raise InputError(
                f"tail='drop' leaves nothing: {self.num_rows} rows do not fill one batch of {self.batch_size}. "
                "Use a smaller batch, or tail='keep'."
            )

    @property
    def num_batches(self) -> int:
        """Global batches in one epoch; the same on every rank."""
        if self.tail == "drop":
            return self.num_rows // self.batch_size
        return -(-self.num_rows // self.batch_size)

    def rows(self, epoch: int) -> torch.Tensor:
        """Global row indices of an epoch, in order (int64)."""
        import torch

        if not self.shuffle:
            order = torch.arange(self.num_rows)
        else:
            generator = torch.Generator().manual_seed(self.seed + epoch)
            order = torch.randperm(self.num_rows, generator=generator)
        return self.filled(order)

    def filled(self, order: torch.Tensor) -> torch.Tensor:
        """`order` with the rows that "pad" adds to its last batch."""
        if self.tail != "pad":
            return order
        wanted = self.num_batches * self.batch_size
        return order.repeat(-(-wanted // self.num_rows))[:wanted]

    def num_records(self, batch: int) -> int:
        """Rows in global batch `batch` of any epoch."""
        if self.tail == "pad":
            return self.batch_size
        return min(self.batch_size, self.num_rows - batch * self.batch_size)

    def share(self, rows: torch.Tensor, batch: int, *, rank: int, size: int) -> torch.Tensor:
        """The rows of global batch `batch` that belong to `rank`; empty when the batch has fewer rows than ranks."""
        start = batch * self.batch_size
        return rows[start + rank : start + self.num_records(batch) : size]
