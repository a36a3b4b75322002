"""Checks the number of processes of a run before any is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trek.errors import ConfigError
from trek.strategies.strategy_registry import STRATEGIES, check_elastic, leases_work

_MAX_WORKERS = 65_536
"""More than that is a mistake, and would fill the memory before the first process starts."""


@dataclass(frozen=True)
class WorkerRange:
    """How few and how many processes a run may have while it goes on."""

    min: int
    max: int

    def __contains__(self, count: int) -> bool:
        return self.min <= count <= self.max


def read_workers(workers: Any, *, strategy: str | None, options: Mapping[str, Any]) -> int | WorkerRange:
    """`workers` as a user gives them: a number, or the least and the most of a run whose processes come and go.

    Asynchronous workers of parameter servers lease what they train on, and may be replaced, also if their number is
    fixed.
    """
    if not isinstance(workers, tuple | list):
        count = check_workers(workers, strategy=strategy)
        is_leasing = count > 1 and leases_work(strategy, options)
        return WorkerRange(count, count) if is_leasing else count
    if len(workers) != 2:
        raise ConfigError(f"workers must be a number or (least, most), got {workers!r}.")
    least, most = (check_workers(count, strategy=None) for count in workers)
    if least > most:
        raise ConfigError(f"workers must be (least, most), got {workers!r}. Write ({most}, {least}).")
    check_elastic(strategy, options)
    return WorkerRange(least, most)


def check_workers(workers: Any, *, strategy: str | None) -> int:
    """`workers`, if it is a number of processes that `strategy` supports; otherwise raise `ConfigError`."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ConfigError(f"workers must be a whole number of at least 1, got {workers!r}.")
    if workers > _MAX_WORKERS:
        raise ConfigError(f"workers must be at most {_MAX_WORKERS}, got {workers}. Use one for each GPU or CPU core.")
    if strategy is not None and workers > 1:  # 1 is the default, also if a launcher started several
        STRATEGIES.load(strategy).check_workers(workers)
    return workers
