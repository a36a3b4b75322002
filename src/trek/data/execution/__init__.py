"""How plans run: executors behind four primitives, and which one is used where none is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trek.data.execution.base import Executor

_current: ContextVar[Executor | None] = ContextVar("trek_data_executor", default=None)

__all__ = ["current_executor", "running_on"]


def current_executor() -> Executor:
    """The executor of the enclosing `running_on`; threads of this process otherwise."""
    return _current.get() or _default_executor()


@contextmanager
def running_on(executor: Executor) -> Iterator[Executor]:
    """Run the actions of this block on `executor`, and close it at the end."""
    token = _current.set(executor)
    try:
        with executor:
            yield executor
    finally:
        _current.reset(token)


@cache
def _default_executor() -> Executor:
    from trek.data.execution.threads import ThreadExecutor

    return ThreadExecutor()
