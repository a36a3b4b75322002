"""Metrics of trials as plain JSON: pairs of key and metric, with None for a metric that is infinite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Pairs = list[list[Any]]


def to_pairs(metrics: Mapping[int, float]) -> Pairs:
    """Metrics by key, as JSON can hold them."""
    return [[key, None if metric == math.inf else metric] for key, metric in metrics.items()]


def from_pairs(pairs: Sequence[Sequence[Any]]) -> dict[int, float]:
    """Metrics by key, from `to_pairs`."""
    return {key: math.inf if metric is None else metric for key, metric in pairs}
