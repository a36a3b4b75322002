"""A fresh process for the work that a forked one cannot do: that of Polars, whose threads a fork does not copy."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trek.data.execution.processes import ProcessExecutor


def fresh_executor() -> ProcessExecutor:
    """An executor of this process with one worker, which is a fresh interpreter; it ends with this process."""
    return _executor_of(os.getpid())


@cache
def _executor_of(pid: int) -> ProcessExecutor:
    from trek.data.execution.processes import ProcessExecutor

    return ProcessExecutor(1)
