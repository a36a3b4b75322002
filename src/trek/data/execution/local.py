"""LocalExecutor: what executors on this machine share: a store of partitions, and a call for each partition.

Where a call runs is decided by the variant: on a thread of this process, or in a worker process.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from trek.data.execution.base import Executor, Split, Task
from trek.data.execution.parallel import run_all
from trek.data.execution.partition_store import PartitionStore, default_memory_limit
from trek.data.execution.parts import Part, Readable
from trek.data.progress import ProgressBar, progress_bar
from trek.errors import InputError


class LocalExecutor(Executor):
    """Runs a call for each partition, as many at a time as there are workers."""

    store: PartitionStore

    def __init__(
        self, num_workers: int | None, *, memory_limit_bytes: int | None, spill_dir: Path | None = None
    ) -> None:
        require_positive(num_workers=num_workers, memory_limit_bytes=memory_limit_bytes)
        self.num_workers = num_workers or os.cpu_count() or 1
        self.memory_limit_bytes = memory_limit_bytes or default_memory_limit()
        self.spill_dir = spill_dir

    @property
    def num_spilled_bytes(self) -> int:
        """What the store put on disk."""
        return self.store.num_spilled_bytes

    def keep(self, batches: Iterable[pa.RecordBatch]) -> Part:
        """Keep rows in the store."""
        return self._owned(self.store.write(batches))

    def map(self, task: Task, *inputs: Sequence[Readable]) -> list[Part]:
        """Run `task` over partition i of every input, for all i at once; keep the result of each."""

        count = len(inputs[0])
        work = _map_partition if count > 1 else _map_only_partition

        def run(index: int) -> Part:
            part: Part = self._call(work, self.store, task, index, [parts[index] for parts in inputs])
            return self._owned(part)

        return self._run_all(run, count)

    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        """Send every row to the partition that `split` names; rows of lower partitions come first."""

        def run(index: int) -> list[Part]:
            pieces: list[Part] = self._call(_split_partition, self.store, split, index, parts[index], num_partitions)
            return [self._owned(piece) for piece in pieces]

        return _join_pieces(self._run_all(run, len(parts)), num_partitions=num_partitions)

    def close(self) -> None:
        """Remove everything kept."""
        self.store.close()

    def _run_all(self, run: Callable[[int], Any], count: int) -> list[Any]:
        return run_all(run, count, num_threads=self.num_workers)

    @abstractmethod
    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What `function(*arguments)` gives, run by a worker."""

    def _owned(self, part: Part) -> Part:
        """`part`, whose files are removed with the last reference to it."""
        return part


def _map_partition(store: PartitionStore, task: Task, index: int, inputs: list[Readable]) -> Part:
    return store.write(task(index, *(readable.batches() for readable in inputs)))


def _map_only_partition(store: PartitionStore, task: Task, index: int, inputs: list[Readable]) -> Part:
    """The same for what is not divided, such as one large file: its rows are counted, since there is nothing else."""
    total = _num_rows(inputs[0])
    with progress_bar(total, title="data", unit=" rows", delay_s=1.0) as bar:
        first, *others = (readable.batches() for readable in inputs)
        return store.write(task(index, _counted(first, bar), *others))


def _counted(batches: Iterable[pa.RecordBatch], bar: ProgressBar) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        bar.update(batch.num_rows)


def _num_rows(readable: Any) -> int | None:
    """Rows of a partition, where its source knows them and nothing comes in between."""
    found: int | None = getattr(getattr(readable, "source", readable), "num_rows", None)
    return found


def _split_partition(
    store: PartitionStore, split: Split, index: int, part: Readable, num_partitions: int
) -> list[Part]:
    writers = [store.writer() for _ in range(num_partitions)]
    try:
        for target, batch in split(index, part.batches()):
            writers[target].append(batch)
        return [writer.finish() for writer in writers]
    except BaseException:
        for writer in writers:
            writer.abort()
        raise


def _join_pieces(pieces: Sequence[Sequence[Part]], *, num_partitions: int) -> list[Part]:
    """Partition j of an exchange: the j-th piece of every input partition, in order."""
    return [
        Part(tuple(segment for source in pieces for segment in source[target].segments))
        for target in range(num_partitions)
    ]


def require_positive(**settings: int | None) -> None:
    """Refuse settings below 1; None is for the default."""
    for name, value in settings.items():
        if value is not None and (not hasattr(value, "__index__") or value < 1):
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
