"""Threads of this process: nothing is copied, and what releases the GIL (Arrow, NumPy, torch) runs in parallel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trek.data.execution.local import LocalExecutor
from trek.data.execution.partition_store import MemoryStore


class ThreadExecutor(LocalExecutor):
    """Runs partitions on threads that live as long as one call."""

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        memory_limit_bytes: int | None = None,
        spill_dir: Path | None = None,
    ) -> None:
        super().__init__(num_workers, memory_limit_bytes=memory_limit_bytes, spill_dir=spill_dir)
        self.store = MemoryStore(memory_limit_bytes=self.memory_limit_bytes, spill_dir=spill_dir)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)
