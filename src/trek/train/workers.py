"""Checks the number of processes of a run before any is started."""

from __future__ import annotations

from typing import Any

from trek.errors import ConfigError
from trek.strategies.strategy_registry import STRATEGIES

_MAX_WORKERS = 65_536
"""More than that is a mistake, and would fill the memory before the first process starts."""


def check_workers(workers: Any, *, strategy: str | None) -> int:
    """`workers`, if it is a number of processes that `strategy` supports; otherwise raise `ConfigError`."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ConfigError(f"workers must be a whole number of at least 1, got {workers!r}.")
    if workers > _MAX_WORKERS:
        raise ConfigError(f"workers must be at most {_MAX_WORKERS}, got {workers}. Use one for each GPU or CPU core.")
    if strategy is not None and workers > 1:  # 1 is the default, also if a launcher started several
        STRATEGIES.load(strategy).check_workers(workers)
    return workers
