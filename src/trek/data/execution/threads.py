"""Threads of this process: nothing is copied, and what releases the GIL (Arrow, NumPy, torch) runs in parallel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from trek.data.execution.base import (
    Executor,
    Split,
    Task,
    default_memory_limit,
    join_pieces,
    require_positive,
    split_into,
)
from trek.data.execution.parallel import run_all
from trek.data.execution.partition_store import MemoryStore
from trek.data.execution.parts import Part, Readable


class ThreadExecutor(Executor):
    """Runs partitions on threads that live as long as one call."""

    shares_memory = True

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        memory_limit_bytes: int | None = None,
        spill_dir: Path | None = None,
    ) -> None:
        require_positive(num_workers=num_workers, memory_limit_bytes=memory_limit_bytes)
        self.num_workers = num_workers or os.cpu_count() or 1
        self.memory_limit_bytes = memory_limit_bytes or default_memory_limit()
        self.store = MemoryStore(memory_limit_bytes=self.memory_limit_bytes, spill_dir=spill_dir)

    @property
    def num_spilled_bytes(self) -> int:
        """Bytes that went to disk so far."""
        return self.store.num_spilled_bytes

    def put(self, table: pa.Table) -> Part:
        """Keep a table."""
        return self.store.write(table.to_batches())

    def map(self, task: Task, *inputs: Sequence[Readable]) -> list[Part]:
        """Run `task` over partition i of every input, for all i at once; keep what each gives."""

        def run(index: int) -> Part:
            return self.store.write(task(index, *(readables[index].batches() for readables in inputs)))

        return run_all(run, len(inputs[0]), num_threads=self.num_workers)

    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        """Send every row to the partition that `split` names; rows of lower partitions come first."""

        def run(index: int) -> list[Part]:
            return split_into(self.store, split(index, parts[index].batches()), num_partitions=num_partitions)

        return join_pieces(run_all(run, len(parts), num_threads=self.num_workers), num_partitions=num_partitions)

    def close(self) -> None:
        """Remove what was spilled."""
        self.store.close()
