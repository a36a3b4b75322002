"""How plans run: executors behind four primitives, and which one is used where none is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from trek.registry import Registry

if TYPE_CHECKING:
    from trek.data.execution.base import Executor

_current: ContextVar[Executor | None] = ContextVar("trek_data_executor", default=None)

EXECUTORS: Registry[type[Executor]] = Registry(
    "executors",
    {
        "threads": "trek.data.execution.threads:ThreadExecutor",
        "processes": "trek.data.execution.processes:ProcessExecutor",
        "ray": "trek.data.execution.ray_executor:RayExecutor",
    },
    word="executor",
    extras={"ray": "ray"},
    base="trek.data.execution.base:Executor",
)

__all__ = ["EXECUTORS", "current_executor", "open_executor", "running_on"]


def current_executor() -> Executor:
    """The executor of the enclosing `running_on`; threads of this process otherwise."""
    return _current.get() or _default_executor()


def open_executor(name: str, **settings: Any) -> Executor:
    """The executor called `name`; `settings` are its own, such as `num_workers`."""
    kind: Any = EXECUTORS.load(name)
    EXECUTORS.check_settings(name, settings, taken_by=kind)
    executor: Executor = kind(**settings)
    return executor


@contextmanager
def running_on(executor: Executor | str, **settings: Any) -> Iterator[Executor]:
    """Run the actions of this block on `executor`, and close it at the end.

    An executor may be named, with its settings: `running_on("processes", num_workers=4)`.
    """
    executor = open_executor(executor, **settings) if isinstance(executor, str) else executor
    token = _current.set(executor)
    try:
        with executor:
            yield executor
    finally:
        _current.reset(token)


@cache
def _default_executor() -> Executor:
    return open_executor("threads")
