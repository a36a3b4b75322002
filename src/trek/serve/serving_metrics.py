"""ServingMetrics: counts and times of requests, in the format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trek.serve.model_pool import ModelPool

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, text: str) -> Iterable[str]:
        yield from (f"# HELP {name} {text}", f"# TYPE {name} histogram")
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield from (f"{name}_sum {self._sum}", f"{name}_count {total}")


class ServingMetrics:
    """What the front process counts. One thread uses it."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._deaths = 0
        self._times = _Histogram(_SECONDS)
        self._batches = _Histogram(_REQUESTS)

    def count_request(self, *, version: str, status: int, duration_s: float) -> None:
        """An answered request."""
        self._requests[version, status] += 1
        self._times.add(duration_s)

    def count_batch(self, size: int) -> None:
        """Requests that were given to a worker together."""
        self._batches.add(size)

    def count_death(self) -> None:
        """A worker that ended by itself."""
        self._deaths += 1

    def to_text(self, pools: Mapping[str, ModelPool]) -> str:
        """What a scraper reads."""
        counts = {f'{{version="{version}",status="{status}"}}': n for (version, status), n in self._requests.items()}
        waiting = {f'{{version="{version}"}}': pool.num_waiting for version, pool in pools.items()}
        ready = {f'{{version="{version}"}}': pool.num_ready for version, pool in pools.items()}
        lines = [
            *_values("trek_serve_requests_total", "counter", "Answered requests.", counts),
            *_values(
                "trek_serve_worker_deaths_total", "counter", "Workers that ended by themselves.", {"": self._deaths}
            ),
            *_values("trek_serve_waiting", "gauge", "Requests that wait for a worker.", waiting),
            *_values("trek_serve_workers_ready", "gauge", "Workers that hold the model.", ready),
            *self._times.lines("trek_serve_request_seconds", "Time of requests."),
            *self._batches.lines("trek_serve_batch_requests", "Requests that a worker got together."),
        ]
        return "\n".join(lines) + "\n"


def _values(name: str, kind: str, text: str, values: Mapping[str, int]) -> Iterable[str]:
    yield from (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
    yield from (f"{name}{labels} {value}" for labels, value in values.items())
