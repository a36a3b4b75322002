"""Loader: what a training loop pulls batches from. One file per kind of data beside this one.

Contracts: `batches(epoch, start=k)` yields exactly what `batches(epoch)` yields from its k-th batch on, whatever was
read before; every rank yields the same number of batches unless `num_batches` is None; a rank for which a global batch
has no row yields a stand-in with `num_samples` 0, so that collectives stay in step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trek.data.loaders.sample_count import count_samples
from trek.world import World

if TYPE_CHECKING:
    from trek.data.loaders.dataloader import DataLoader

__all__ = ["Batch", "Loader", "count_samples", "do_nothing"]


@dataclass(slots=True)
class Batch:
    """One rank's part of one global batch."""

    data: Any
    num_samples: int
    """Samples here that count; 0 marks a stand-in."""
    global_samples: int | None
    """Samples over all ranks; None if no rank knows the others'."""


@dataclass(frozen=True)
class Place:
    """Where in an epoch a run stopped, as the run counted it."""

    batches: int
    """Batches that each rank had read."""
    records: int
    """Records in them, over all ranks."""
    own_records: int | None
    """Records that this rank had read of them; None for a rank that did not exist."""
    num_ranks: int


def do_nothing() -> None:
    """Do nothing."""


class Loader(ABC):
    """Batches for one rank.

    A loader of another package says by `accepts` which data it is for, and is made by `bind`; it is asked before
    `DataLoader` chooses one of Trek's own.
    """

    num_batches: int | None
    """Batches in an epoch; None if that is known only by reading."""
    batch_records: int | None
    """Records in a full global batch; None when unknown."""
    is_pure = False
    """Whether reading draws from no random generator of this process, so that reading ahead changes nothing."""
    stand_in: Batch | None = None
    """For a rank that has no batch left after a resume: the last one that it had read before."""
    is_on_device = False
    """Whether batches are on the World's device already."""

    @classmethod
    def accepts(cls, dataset: Any) -> bool:
        """Whether this loader is for `dataset`, the first argument of a DataLoader; must be quick to say."""
        return False

    @classmethod
    def bind(cls, loading: DataLoader, *, world: World, seed: int) -> Loader:
        """The loader of one rank of `world` for what `loading` describes."""
        raise NotImplementedError

    @abstractmethod
    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """The batches of `epoch` from the `start`-th on.

        `at_start` is called once, when reading stands at `start` and before that batch is read: getting there may have
        drawn random numbers, and this is the moment to put the generators back.
        """

    def batches_from(self, epoch: int, place: Place, *, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """The batches of `epoch` that a run had not read when it stopped at `place`.

        Raises InputError where that would train a row twice or never. By default, a place is its number of batches.
        """
        return self.batches(epoch, start=place.batches, at_start=at_start)

    def records(self, epoch: int) -> list[int] | None:
        """Records of each global batch of `epoch`; None if that is known only by reading."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """What must be restored beside the global random generators, to read the same again.

        Most loaders need nothing: their batches depend on the epoch alone.
        """
        return {}

    def order_state(self) -> dict[str, Any]:
        """The part of `state_dict` that must be the same on every rank: what decides which rank gets which rows."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restore `state_dict`, of which parts may be missing."""

    def read_from(self) -> dict[str, Any]:
        """The user's objects that reading changes in this process, by name.

        They are put back after batches were read that do not count; none, if a pass depends on the epoch alone.
        """
        return {}

    @property
    def is_read_once(self) -> bool:
        """Whether what was read cannot be read again."""
        return False

    def keep_batches(self) -> bool:
        """From now on, keep what is read, if reading it again would be slow or impossible.

        Returns whether the objects of `read_from` go on from where they are, and must not be put back.
        """
        return False

    def give_again(self) -> None:  # noqa: B027
        """Everything read since `keep_batches` is given again by the next `batches`."""

    def close(self) -> None:  # noqa: B027 - most loaders hold nothing
        """End background workers; the loader can be iterated again afterwards."""
