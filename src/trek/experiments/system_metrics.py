"""SystemMetrics: what a trial's process takes of its machine, measured and reported on a thread of its own.

Figures are of this process and its children (the workers of its loaders); the network's are of the whole machine, since
no process has its own. They are not essential: one that cannot be measured or delivered is left out.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import psutil

from trek.client.models import MetricPoint, Report
from trek.errors import TrekError

PERIOD_S = 5.0
FIRST_S = 1.0
GROUP = "system."
"""Groups of metrics that begin so are measured by Trek, and have the second of the measurement in place of batches."""


@dataclass(frozen=True)
class Usage:
    """What was used up to a moment: CPU seconds and bytes since the start, memory at present."""

    time_s: float
    cpu_s: float
    memory_bytes: int
    disk_read: int
    disk_written: int
    network_received: int
    network_sent: int
    waited_s: float | None = None
    """For data; None where it is not known."""


def rates(before: Usage, now: Usage) -> dict[str, float]:
    """The figures to report, from two measurements. Pure."""
    elapsed_s = max(now.time_s - before.time_s, 1e-3)
    waited = {}
    if before.waited_s is not None and now.waited_s is not None:
        waited["data_wait_percent"] = min(max(100.0 * (now.waited_s - before.waited_s) / elapsed_s, 0.0), 100.0)
    return {
        "cpu_percent": max(100.0 * (now.cpu_s - before.cpu_s) / elapsed_s, 0.0),
        "memory_bytes": float(now.memory_bytes),
        "disk_read_bytes_per_s": max(now.disk_read - before.disk_read, 0) / elapsed_s,
        "disk_write_bytes_per_s": max(now.disk_written - before.disk_written, 0) / elapsed_s,
        "network_received_bytes_per_s": max(now.network_received - before.network_received, 0) / elapsed_s,
        "network_sent_bytes_per_s": max(now.network_sent - before.network_sent, 0) / elapsed_s,
        **waited,
    }


def measure() -> Usage:
    """Of this process and its children, now."""
    cpu_s, memory, read, written = 0.0, 0, 0, 0
    for process in _family():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            cpu_s += times.user + times.system
            memory += process.memory_info().rss
        with contextlib.suppress(psutil.Error, AttributeError, OSError):
            counters = process.io_counters()
            read, written = read + counters.read_bytes, written + counters.write_bytes
    network = psutil.net_io_counters()
    received, sent = (network.bytes_recv, network.bytes_sent) if network is not None else (0, 0)
    return Usage(time.time(), cpu_s, memory, read, written, received, sent)


class SystemReporter:
    """Use as a context manager around the training. `send` delivers one Report; its errors end nothing.

    `waited_s` tells how long the training has waited for data so far, where that is known.
    """

    def __init__(
        self,
        send: Callable[[Report], Any],
        *,
        run: int,
        rank: int,
        period_s: float = PERIOD_S,
        first_s: float = FIRST_S,
        take: Callable[[], Usage] = measure,
        gpu: Callable[[], Mapping[str, float]] = dict,
        waited_s: Callable[[], float] | None = None,
    ) -> None:
        self._send = send
        self._run = run
        self._group = f"{GROUP}{rank}"
        self._waits = (first_s, period_s)
        self._take = take
        self._gpu = gpu
        self._waited_s = waited_s
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trek-system-metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_done.set()
        self._thread.join()

    def _work(self) -> None:
        before = self._measure()
        wait_s = self._waits[0]
        while not self._is_done.wait(wait_s):
            now = self._measure()
            self._report(now.time_s, {**rates(before, now), **self._gpu()})
            before, wait_s = now, self._waits[1]

    def _measure(self) -> Usage:
        usage = self._take()
        return usage if self._waited_s is None else replace(usage, waited_s=self._waited_s())

    def _report(self, time_s: float, figures: Mapping[str, float]) -> None:
        point = MetricPoint(group=self._group, batches=int(time_s), metrics=dict(figures), time_s=time_s)
        with contextlib.suppress(TrekError):  # the logger deals with a control plane that is gone
            self._send(Report(run=self._run, metrics=[point]))


def _family() -> Iterator[psutil.Process]:
    own = psutil.Process()
    yield own
    with contextlib.suppress(psutil.Error):
        yield from own.children(recursive=True)
