"""Tasks: attempts at steps, and how their ends reach the runner's loop from other threads."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trek.flow.artefacts import Stored
from trek.flow.graph import Step
from trek.flow.randomness import seed_of


@dataclass(eq=False)
class Task:
    """One attempt at one step, with every reference replaced by what it stands for."""

    step: Step
    number: int
    values: dict[str, Any]
    """As `Step.values`, substituted."""
    run: str
    key: str
    attempt: Path
    log: Path
    deadline: float | None = None
    """When it is out of time, on the monotonic clock, once it was started."""
    digest: str | None = None
    """Identifies outputs that are kept in memory."""

    threads: Mapping[str, str] = field(default_factory=dict)
    """Variables that give its processes their share of the cores."""

    def start_clock(self) -> None:
        """Its time runs from now: the executor has a process for it."""
        limit_s = self.step.settings.timeout_s
        self.deadline = None if limit_s is None else time.monotonic() + limit_s

    @property
    def env(self) -> dict[str, str]:
        """Variables for its processes."""
        return {**self.threads, **{name: str(value) for name, value in self.values["env"].items()}}

    @property
    def seed(self) -> int:
        """What the random generators of its process start from."""
        return seed_of(self.step.name)


@dataclass(frozen=True)
class Ended:
    """How a task ended; `error` is None when it went well."""

    task: Task
    outputs: tuple[Stored, ...] = ()
    error: str | None = None
    traceback: str = field(default="", repr=False)
    is_outside: bool = False
    """Whether something outside Trek failed, such as a disk or a host, and not the step's own code."""


@dataclass(frozen=True)
class Failure:
    """Why a step failed for good."""

    error: str
    traceback: str = ""
    is_outside: bool = False


class Mailbox:
    """Passes ends of tasks from any thread to the loop's; its descriptor is readable when there are some."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Callable[[], Ended | None]] = queue.SimpleQueue()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`."""
        return self._read

    def put(self, ended: Ended) -> None:
        """Pass an end to the loop."""
        self.call(lambda: ended)

    def call(self, function: Callable[[], Ended | None]) -> None:
        """Have the loop's thread call `function`, which may find that a task has ended."""
        self._items.put(function)
        os.write(self._write, b"\0")

    def take(self) -> Iterator[Ended]:
        """Every end that has arrived."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            return
        while not self._items.empty():
            if (ended := self._items.get()()) is not None:
                yield ended

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read)
        os.close(self._write)
