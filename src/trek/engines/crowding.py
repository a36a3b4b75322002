"""More workers than CPU cores: allowed, since cores can be shared, and reported, since it is seldom meant."""

from __future__ import annotations

import sys

from trek.engines.base import Engine

MAX_PER_CORE = 8
"""Trials with more processes for each core are refused: they would hold up the whole machine."""


def describe_crowding(num_workers: int, *, slots: int) -> str:
    """The workers and the cores, in words; empty where each worker has a core."""
    if num_workers <= slots:
        return ""
    cores = "1 CPU core" if slots == 1 else f"{slots} CPU cores"
    return f"{num_workers} workers share {cores}: more than that seldom train faster."


def warn_of_crowding(engine: Engine, num_workers: int) -> None:
    """One line on stderr if the workers will share cores. GPUs, and clusters that grow, are the engine's matter."""
    if engine.can_grow or engine.num_gpus():
        return
    if text := describe_crowding(num_workers, slots=engine.slots()):
        print(f"trek: warning: {text}", file=sys.stderr, flush=True)
