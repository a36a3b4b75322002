"""A fresh process for the work that a forked one cannot do: that of Polars, whose threads a fork does not copy.

Rows travel through Arrow files in shared memory, as they do for `ProcessExecutor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

import pyarrow as pa

from trek.data.execution.parts import MemorySegment, Part

if TYPE_CHECKING:
    from trek.data.execution.processes import ProcessExecutor


def fresh_executor() -> ProcessExecutor:
    """An executor of this process with one worker, which is a fresh interpreter; it ends with this process."""
    return _executor_of(os.getpid())


def in_fresh_process(function: Callable[[pa.Table], pa.Table], table: pa.Table) -> pa.Table:
    """What `function` gives for `table`."""
    (part,) = fresh_executor().map(_Call(function, table.schema), [Part((MemorySegment(table.to_batches()),))])
    return pa.Table.from_batches(list(part.batches()))


@dataclass(frozen=True)
class _Call:
    function: Callable[[pa.Table], pa.Table]
    schema: pa.Schema

    def __call__(self, index: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = self.function(pa.Table.from_batches(list(batches), self.schema))
        yield from found.to_batches() or [pa.RecordBatch.from_pylist([], found.schema)]


@cache
def _executor_of(pid: int) -> ProcessExecutor:
    from trek.data.execution.processes import ProcessExecutor

    executor = ProcessExecutor(1)
    Finalize(executor, executor.close, exitpriority=1)  # children of multiprocessing run no other exit functions
    return executor
