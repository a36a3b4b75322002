"""Threads of this process: nothing is copied, and what releases the GIL (Arrow, NumPy, torch) runs in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from trek.data.execution.base import Executor, Split, Task, default_memory_limit
from trek.data.execution.parts import Part, Readable
from trek.data.execution.store import MemoryStore

_Result = TypeVar("_Result")


class ThreadExecutor(Executor):
    """Runs partitions on threads that live as long as one call."""

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        memory_limit_bytes: int | None = None,
        spill_dir: Path | None = None,
    ) -> None:
        self.num_workers = num_workers or os.cpu_count() or 1
        self.store = MemoryStore(memory_limit_bytes=memory_limit_bytes or default_memory_limit(), spill_dir=spill_dir)

    def put(self, table: pa.Table) -> Part:
        """Keep a table."""
        return self.store.write(table.to_batches())

    def map(self, task: Task, *inputs: Sequence[Readable]) -> list[Part]:
        """Run `task` over partition i of every input, for all i at once; keep what each gives."""

        def run(index: int) -> Part:
            return self.store.write(task(index, *(readables[index].batches() for readables in inputs)))

        return self._all(run, len(inputs[0]))

    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        """Send every row to the partition that `split` names; rows of lower partitions come first."""

        def run(index: int) -> list[Part]:
            rows: list[list[pa.RecordBatch]] = [[] for _ in range(num_partitions)]
            for target, batch in split(index, parts[index].batches()):
                rows[target].append(batch)
            return [self.store.write(batches) for batches in rows]

        return join_pieces(self._all(run, len(parts)), num_partitions=num_partitions)

    def close(self) -> None:
        """Remove what was spilled."""
        self.store.close()

    def _all(self, run: Callable[[int], _Result], num_partitions: int) -> list[_Result]:
        if num_partitions == 1 or self.num_workers == 1:
            return [run(index) for index in range(num_partitions)]
        with ThreadPoolExecutor(self.num_workers, thread_name_prefix="trek-data") as pool:
            return list(pool.map(run, range(num_partitions)))


def join_pieces(pieces: Sequence[Sequence[Part]], *, num_partitions: int) -> list[Part]:
    """Partition j of an exchange: the j-th piece of every input partition, in order."""
    return [
        Part(tuple(segment for source in pieces for segment in source[target].segments))
        for target in range(num_partitions)
    ]
