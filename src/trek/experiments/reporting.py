"""ControlPlaneLogger: tells the control plane what a trial does, off the training thread, and learns when to stop.

Logging a row appends it to a list; a thread of its own sends what has gathered, again and again while the control plane
is slow or away. What is left when the trial ends goes to a file that the supervisor takes in.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from trek.client.models import CheckpointReport, MetricPoint, Report, ReportReply
from trek.errors import MasterUnreachable, TrekError
from trek.experiments.spool import spool
from trek.train.loggers.base import CheckpointRow, Logger, MetricRow
from trek.train.stopping import StopRequest

BATCH_ROWS = 2000
POLL_S = 0.5
GATHER_S = 0.02
"""Rows that come close together travel together."""
DRAIN_S = 10.0
MAX_PAUSE_S = 2.0


class ControlPlaneLogger(Logger):
    """Use as a context; `send` delivers one Report and may raise MasterUnreachable as often as it likes."""

    def __init__(
        self,
        send: Callable[[Report], ReportReply],
        *,
        run: int,
        folder: Path,
        stop: StopRequest,
        poll_s: float = POLL_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._send = send
        self._run = run
        self._folder = folder
        self._stop = stop
        self._poll_s = poll_s
        self._drain_s = drain_s
        self._changed = threading.Condition()
        self._metrics: list[MetricPoint] = []
        self._checkpoints: list[CheckpointReport] = []
        self._deleted: list[str] = []
        self._progress: float | None = None
        self._is_closing = False
        self._deadline = math.inf
        self._thread = threading.Thread(target=self._work, name="trek-reporting", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.finish()

    def log_metrics(self, row: MetricRow) -> None:
        """Queue a row."""
        point = MetricPoint(
            group=row.group,
            batches=row.batches,
            epoch=row.epoch,
            metrics=_finite(row.metrics),
            time_s=row.time_s,
            duration_s=row.duration_s,
        )
        with self._changed:
            self._metrics.append(point)
            self._changed.notify()

    def log_progress(self, fraction: float) -> None:
        """Remember the newest progress; it travels with the next report."""
        with self._changed:
            self._progress = fraction

    def log_checkpoint(self, row: CheckpointRow) -> None:
        """Queue a checkpoint."""
        report = CheckpointReport(
            uuid=row.uuid,
            batches=row.batches,
            path=row.path,
            num_bytes=row.num_bytes,
            metrics=_finite(row.metrics),
            time_s=row.time_s,
        )
        with self._changed:
            self._checkpoints.append(report)
            self._changed.notify()

    def log_checkpoint_deleted(self, uuid: str) -> None:
        """Queue the news that a checkpoint is gone."""
        with self._changed:
            self._deleted.append(uuid)
            self._changed.notify()

    def finish(self) -> None:
        """Deliver what is left, or spool it; returns within the time to drain."""
        with self._changed:
            self._is_closing = True
            self._deadline = time.monotonic() + self._drain_s
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            is_last = self._gather()
            report = self._take()
            if report is not None or not is_last:
                self._deliver(report or Report(run=self._run))
            elif is_last:
                return

    def _gather(self) -> bool:
        """Wait for rows, for the next poll, or for the end; says whether it is the end."""
        with self._changed:
            if not self._is_closing and not self._has_rows():
                self._changed.wait(self._poll_s)
            if not self._is_closing and self._has_rows():
                self._changed.wait(GATHER_S)
            return self._is_closing

    def _has_rows(self) -> bool:
        return bool(self._metrics or self._checkpoints or self._deleted)

    def _take(self) -> Report | None:
        with self._changed:
            if not self._has_rows() and self._progress is None:
                return None
            report = Report(
                run=self._run,
                metrics=self._metrics[:BATCH_ROWS],
                checkpoints=self._checkpoints,
                deleted_checkpoints=self._deleted,
                progress=self._progress,
            )
            self._metrics = self._metrics[BATCH_ROWS:]
            self._checkpoints, self._deleted, self._progress = [], [], None
            return report

    def _deliver(self, report: Report) -> None:
        pause_s = 0.1
        while True:
            try:
                reply = self._send(report)
            except MasterUnreachable:
                if time.monotonic() >= self._deadline:
                    return spool(self._folder, report)
                with self._changed:
                    if not self._is_closing or pause_s < MAX_PAUSE_S:
                        self._changed.wait(min(pause_s, max(self._deadline - time.monotonic(), 0)))
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
            except TrekError as error:
                print(f"trek: a report was refused and kept in {self._folder}: {error}", flush=True)
                return spool(self._folder, report)
            else:
                if reply.stop:
                    self._stop.request(reply.stop)
                return None


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
