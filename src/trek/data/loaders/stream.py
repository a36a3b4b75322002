"""Batches of anything that can be iterated: the batches are taken as they come.

What is iterated does not know its rank, so in a World of several each rank takes every size-th batch, unless the caller
says that the stream is sharded already. Resuming reads and drops the records that came before, however they were
batched and shared out then; where no batch ends at that record, it is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader

from trek.data.loaders.base import Batch, Loader, Place, count_samples, do_nothing
from trek.data.loaders.kept_batches import KeptBatches
from trek.data.loaders.reader_state import ReaderState
from trek.errors import InputError
from trek.world import World
from trek.world.seeds import random_state, restore_random_state


class StreamLoader(Loader):
    """Batches taken from an iterable."""

    def __init__(
        self, batches: Iterable[Any], *, world: World, is_sharded: bool = False, batch_records: int | None = None
    ) -> None:
        """`batch_records` are the records of a global batch; by default, every rank takes a batch of the stream."""
        self._source = batches
        if isinstance(batches, TorchDataLoader) and batches.persistent_workers:
            # Worker processes that outlive an epoch hold states of it, which a resumed run could not give them.
            vars(batches)["persistent_workers"] = False
        self._world = world
        self._is_sharded = is_sharded
        self._step = 1 if is_sharded else world.size
        self._offset = 0 if is_sharded else world.rank
        self._state = ReaderState(ordering={"stream": batches})
        self._is_keeping = False
        self._kept: KeptBatches | None = None
        """The pass that has begun before it counts."""
        self._begun: dict[str, Any] = {}
        self._reader_state: dict[str, Any] | None = None
        """That of the place which reading has reached again; None if it is where the stream is."""
        self.num_batches = self._known_length()
        own_size = getattr(batches, "batch_size", None)
        self.batch_records = batch_records or (own_size * world.size if isinstance(own_size, int) else None)

    def batches(self, epoch: int, *, start: int = 0, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """Every size-th batch of the stream, from this rank's `start`-th on."""
        mine = islice(self._open(epoch), self._offset, None, self._step)
        deque(islice(mine, start), maxlen=0)
        at_start()
        yield from map(self._batch, mine)

    def batches_from(self, epoch: int, place: Place, *, at_start: Callable[[], None] = do_nothing) -> Iterator[Batch]:
        """The batches after the first records of the stream, as many as `place` says."""
        is_same_world = place.num_ranks == self._world.size
        if self._is_sharded and (not is_same_world or place.own_records is None):
            raise InputError(
                f"this run was saved in the middle of epoch {epoch + 1} of a sharded stream on {place.num_ranks} "
                f"processes and cannot be resumed there on {self._world.size}: each process knows only its own shard. "
                "Use the same number of processes, or a checkpoint at the end of an epoch."
            )
        wanted = place.own_records if self._is_sharded and place.own_records is not None else place.records
        stream = self._open(epoch)
        # A rank had not read beyond its own last batch when the random states of `at_start` were saved.
        num_read = max(0, self._offset + (place.batches - 1) * self._step + 1) if is_same_world else None
        done, self.stand_in = self._drop(islice(stream, num_read), until=wanted)
        at_start()
        done += self._drop(stream, until=wanted - done)[0]
        if done != wanted:
            raise InputError(
                f"this run was saved at record {wanted} of epoch {epoch + 1}, where no batch of the stream ends, "
                f"but one at {done}. Resume with the batch size of the saved run, or from a checkpoint at the end of "
                "an epoch."
            )
        yield from map(self._batch, islice(stream, self._offset, None, self._step))

    def state_dict(self) -> dict[str, Any]:
        """What the stream's own generators and counters are at."""
        return self._state.state_dict() if self._reader_state is None else dict(self._reader_state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put them back."""
        self._state.load_state_dict(state)

    def read_from(self) -> dict[str, Any]:
        """The stream itself."""
        return {"stream": self._source}

    @property
    def is_read_once(self) -> bool:
        """Whether the stream is an iterator, or holds one."""
        return self._state.holds_iterator()

    def keep_batches(self) -> bool:
        """Keep what is read of the stream, which may not begin a second time as it did."""
        self._is_keeping, self._begun = True, self._state.state_dict()
        return True

    def give_again(self) -> None:
        """The pass that was begun goes on with its first batch."""
        self._is_keeping = False
        self._reader_state = self._begun if self._kept is not None else None

    def _drop(self, stream: Iterator[Any], *, until: int) -> tuple[int, Batch | None]:
        """Read and drop batches with `until` records, or the rest of the stream; how many those were, and the last."""
        done, last = 0, None
        while done < until:
            try:
                last = self._batch(next(stream))
            except StopIteration:
                break
            done += last.num_samples
        return done, last

    def _open(self, epoch: int) -> Iterator[Any]:
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept.again()
        if hasattr(self._source, "set_epoch"):
            self._source.set_epoch(epoch)
        if not self._is_keeping:
            return iter(self._source)
        self._kept = KeptBatches(iter(self._source), state=self._place, restore=self._reach)
        return self._kept.first()

    def _place(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return random_state(), self._state.state_dict()

    def _reach(self, place: tuple[dict[str, Any], dict[str, Any]], is_last: bool) -> None:
        """Reading draws random numbers, and what is given again was drawn already."""
        restore_random_state(place[0])
        self._reader_state = None if is_last else place[1]

    def _batch(self, data: Any) -> Batch:
        samples = count_samples(data)
        return Batch(data, samples, None if self._world.is_distributed else samples)

    def _known_length(self) -> int | None:
        # Ranks may hold different numbers of batches, so a length is only known to a rank that is alone.
        if self._world.is_distributed:
            return None
        try:
            return len(self._source)  # type: ignore[arg-type]
        except TypeError:
            return None
