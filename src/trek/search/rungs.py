"""Rungs: the ladder of successive halving. Lengths, the order of trials at each, and how many continue. Pure data."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from math import isinf
from typing import Any


def rung_lengths(max_length: int, *, num_rungs: int, divisor: float) -> list[int]:
    """The length of each rung, the shortest first: the longest divided by the divisor again and again, at least 1."""
    return [max(int(max_length / divisor ** (num_rungs - 1 - i)), 1) for i in range(num_rungs)]


def whole_log(value: float, base: float) -> int:
    """The greatest k with base ** k <= value, exact where logarithms are not."""
    power, k = 1.0, 0
    while power * base <= value * (1 + 1e-12):
        power *= base
        k += 1
    return k


def survivors(count: int, divisor: float) -> int:
    """How many of `count` trials of a rung continue: their share, at least one."""
    return max(int(count / divisor), 1)


def expected_ends(num_trials: int, lengths: list[int], *, divisor: float) -> Counter[int]:
    """How many trials end at which length when every rung keeps exactly its share."""
    ends: Counter[int] = Counter()
    for length in lengths[:-1]:
        going_on = survivors(num_trials, divisor)
        ends[length] += num_trials - going_on
        num_trials = going_on
    ends[lengths[-1]] += num_trials
    return +ends


@dataclass
class Rung:
    """One rung: the metrics reported at its length in order, smaller first, and whose they are."""

    length: int
    metrics: list[float] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)

    def insert(self, key: int, metric: float, *, after_equals: bool = False) -> int:
        """Put a metric in its place, by default before equals; returns the place.

        The worst metric (infinity) always goes last: a trial without a finite metric never displaces another.
        """
        find = bisect_right if after_equals or isinf(metric) else bisect_left
        place = find(self.metrics, metric)
        self.metrics.insert(place, metric)
        self.keys.insert(place, key)
        return place

    def remove(self, key: int) -> None:
        """Forget a trial, if it is here."""
        if key in self.keys:
            place = self.keys.index(key)
            del self.metrics[place]
            del self.keys[place]

    def snapshot(self) -> dict[str, Any]:
        """As plain JSON; an infinite metric is written as None."""
        metrics = [None if metric == float("inf") else metric for metric in self.metrics]
        return {"length": self.length, "metrics": metrics, "keys": list(self.keys)}

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> Rung:
        """From `snapshot`."""
        metrics = [float("inf") if metric is None else metric for metric in snapshot["metrics"]]
        return cls(snapshot["length"], metrics, list(snapshot["keys"]))
