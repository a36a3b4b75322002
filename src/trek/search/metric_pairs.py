"""Metrics of trials as searchers compare them, and as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Pairs = list[list[Any]]


def comparable(metric: float | None, *, smaller_is_better: bool) -> float:
    """The metric as searchers compare it, smaller being better; NaN, either infinity and None are the worst."""
    if metric is None or not math.isfinite(metric):
        return math.inf
    return metric if smaller_is_better else -metric


def to_pairs(metrics: Mapping[int, float]) -> Pairs:
    """Metrics by key as pairs that JSON can hold, with None for a metric that is infinite."""
    return [[key, None if metric == math.inf else metric] for key, metric in metrics.items()]


def from_pairs(pairs: Sequence[Sequence[Any]]) -> dict[int, float]:
    """Metrics by key, from `to_pairs`."""
    return {key: math.inf if metric is None else metric for key, metric in pairs}
