"""Figures of a running server: how often each request came, and how long it took (a histogram by powers of two)."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any


class Latencies:
    """Counts and times of requests by name; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._total_s: Counter[str] = Counter()
        self._slowest_s: dict[str, float] = {}
        self._buckets: dict[str, Counter[int]] = {}

    def add(self, name: str, seconds: float) -> None:
        """Count one request."""
        with self._lock:
            self._counts[name] += 1
            self._total_s[name] += seconds  # type: ignore[assignment]  # a Counter adds any number
            self._slowest_s[name] = max(seconds, self._slowest_s.get(name, 0.0))
            self._buckets.setdefault(name, Counter())[int(seconds * 1e6).bit_length()] += 1

    def summary(self) -> dict[str, dict[str, Any]]:
        """For every request: count, mean, median and 99th percentile (to a factor of two), slowest, histogram.

        The histogram has the number of requests by the time (in ms) that they took at most.
        """
        with self._lock:
            return {
                name: {
                    "count": count,
                    "mean_ms": 1e3 * self._total_s[name] / count,
                    "median_ms": _quantile_ms(self._buckets[name], 0.5),
                    "p99_ms": _quantile_ms(self._buckets[name], 0.99),
                    "slowest_ms": 1e3 * self._slowest_s[name],
                    "total_ms": 1e3 * self._total_s[name],
                    "histogram": {str(_upper_ms(one)): n for one, n in sorted(self._buckets[name].items())},
                }
                for name, count in sorted(self._counts.items())
            }


def _quantile_ms(buckets: Counter[int], quantile: float) -> float:
    """The upper end of the bucket (a power of two of microseconds) that the quantile lies in."""
    wanted, seen = quantile * sum(buckets.values()), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return _upper_ms(bucket)
    return 0.0


def _upper_ms(bucket: int) -> float:
    return float((1 << bucket) / 1e3)
