"""Executor: the four primitives every plan runs on – put, get, map, exchange.

Contracts, for every Executor:

- Order: `map` and `exchange` return one Part for each partition, in order; rows keep the order of their inputs.
- Functions run at the same time for different partitions, one call at a time for one partition.
- Errors: the first failing partition's error is raised, once no function runs any more.
- Ownership: a Part lives while it is referenced, and until `close` at the longest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from trek.data.execution.parts import Part, Readable

if TYPE_CHECKING:
    from trek.data.plans.plan import PlanNode
    from trek.data.storing.sharing import Handle

Stream = Iterator[pa.RecordBatch]
Task = Callable[..., Stream]
"""`task(index, *streams)`: the rows of partition `index`, from the streams of that partition."""
Split = Callable[[int, Stream], Iterator[tuple[int, pa.RecordBatch]]]
"""`split(index, stream)`: for the rows of partition `index`, pairs of a target partition and rows that go there."""


class Executor(ABC):
    """Runs the work of plans. Also a context manager that closes it.

    A variant is made by `Variant(num_workers=…, memory_limit_bytes=…, spill_dir=…)`, all of which have defaults.
    """

    num_workers: int
    memory_limit_bytes: int
    """Results beyond this go to disk."""
    spill_dir: Path | None = None
    """Where results go that exceed the limit; the folder for temporary files unless given."""
    runs_here = True
    """Whether functions run on this machine, so that files they write are here."""

    divides_relations = False
    """Whether joins, sorts, aggregates by key and distinct rows are divided into tasks (`trek.data.plans.divided`),
    rather than computed by one query in the process that asks for them."""

    @property
    @abstractmethod
    def num_spilled_bytes(self) -> int:
        """Bytes of results on disk because memory ran short."""

    @abstractmethod
    def keep(self, batches: Iterable[pa.RecordBatch]) -> Part:
        """Keep rows of this process where every worker can read them."""

    def put(self, table: pa.Table) -> Part:
        """Keep a table where every worker can read it."""
        return self.keep(table.to_batches())

    def get(self, part: Part) -> pa.Table:
        """A kept table, in this process."""
        return pa.Table.from_batches(list(part.batches()))

    @abstractmethod
    def map(self, task: Task, *inputs: Sequence[Readable]) -> list[Part]:
        """Run `task` over partition i of every input, for all i at once; keep what each gives."""

    def compute(self, pieces: Sequence[Readable]) -> list[Part]:
        """Every piece, computed; those that are Parts already are taken as they are."""
        missing = [piece for piece in pieces if not isinstance(piece, Part)]
        made = iter(self.map(pass_on, missing) if missing else ())
        return [piece if isinstance(piece, Part) else next(made) for piece in pieces]

    def collect(self, pieces: Sequence[Readable]) -> Iterator[Stream]:
        """The rows of each piece, computed by the workers, in this process.

        Each is read before the next is asked for, and none once the iterator is gone.
        """
        return (part.batches() for part in self.compute(pieces))

    def read(self, pieces: Sequence[Readable], *, ahead: int | None = None) -> Iterator[Stream]:
        """The same for rows that are computed while they are read, a few at a time: here, by this process.

        Where workers compute them, at most `ahead` pieces are begun before they are read to their end.
        """
        return (piece.batches() for piece in pieces)

    @abstractmethod
    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        """Send every row to the partition that `split` names; rows of lower partitions come first."""

    def share_rows(self, node: PlanNode) -> Handle:
        """The rows of a plan, for other processes to open: here, in the shared memory of this machine."""
        from trek.data.storing.sharing import share
        from trek.data.table import Table

        return share(Table(node).to_arrow())

    @abstractmethod
    def close(self) -> None:
        """End the workers and remove everything kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def pass_on(index: int, batches: Stream) -> Stream:
    """The rows as they are: a task that only has them computed and kept."""
    return batches


def travels_once(value: Any) -> bool:
    """Whether an executor with processes sends `value` to each of them once, not with every partition."""
    return hasattr(type(value), "travels_once") and bool(value.travels_once)
