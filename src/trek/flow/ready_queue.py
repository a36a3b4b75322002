"""ReadyQueue: attempts that may start, and which of them starts next. Pure."""

from __future__ import annotations

import itertools
from collections import deque

from trek.flow.graph import Step


class ReadyQueue:
    """First come, first served among those that fit: a small step does not wait behind a large one."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[tuple[int, Step, int]]] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, step: Step, number: int, *, slots: int) -> None:
        """Attempt `number` at `step`, which takes so many slots, may start."""
        self._waiting.setdefault(slots, deque()).append((next(self._numbers), step, number))

    def take(self, free: int) -> tuple[Step, int, int] | None:
        """The step that has waited longest of those that fit into `free` slots, its attempt and its slots."""
        fitting = [(waiting[0][0], slots) for slots, waiting in self._waiting.items() if slots <= free and waiting]
        if not fitting:
            return None
        _, slots = min(fitting)
        _, step, number = self._waiting[slots].popleft()
        return step, number, slots
