"""ControlPlaneLogger: reports a trial to the control plane, off the training thread, and receives stop requests.

Logging a row puts it in the spool and in a queue; a separate thread sends what has accumulated, and retries while the
control plane is slow or unreachable. What is never delivered stays in the spool, where the supervisor reads it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from trek.client.models import CheckpointReport, MetricPoint, Report, ReportReply
from trek.errors import InputError, MasterUnreachable, RunEnded, TrekError
from trek.experiments.spool import Spool, merged
from trek.train.loggers.base import ArtifactRow, CheckpointRow, Logger, MetricRow
from trek.train.loop.stopping import StopRequest

BATCH_REPORTS = 2000
POLL_S = 0.5
GATHER_S = 0.02
"""How long to wait for more rows, to send them in one report."""
DRAIN_S = 3.0
MAX_PAUSE_S = 2.0
DECISION_S = 10.0
"""How long a trial of a search waits after a validation for the decision whether it continues."""


class ControlPlaneLogger(Logger):
    """Use as a context manager. `send` delivers one Report and may raise MasterUnreachable any number of times."""

    def __init__(
        self,
        send: Callable[[Report], ReportReply],
        *,
        upload: Callable[[ArtifactRow], None] = lambda row: None,
        run: int,
        folder: Path,
        stop: StopRequest,
        awaits_decisions: bool = False,
        poll_s: float = POLL_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._send = send
        self._upload = upload
        self._artifacts: dict[str, ArtifactRow] = {}
        """Artifacts that are not uploaded yet, by name."""
        self._run = run
        self._spool = Spool(folder)
        self._stop = stop
        self._awaits_decisions = awaits_decisions
        self._poll_s = poll_s
        self._drain_s = drain_s
        self._changed = threading.Condition()
        self._queue: list[Report] = []
        self._progress: float | None = None
        self._has_lost = False
        self._is_sending = False
        self._is_awaited = False
        self._is_unreachable = False
        self._deadline = math.inf
        self._thread = threading.Thread(target=self._work, name="trek-reporting", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.finish()

    def log_metrics(self, row: MetricRow) -> None:
        """Queue a row."""
        self._put(Report(run=self._run, metrics=[_point(row)]))
        if row.group == "validation" and self._awaits_decisions:
            self._await_decision()

    def log_progress(self, fraction: float) -> None:
        """Store the newest progress; it is sent with the next report."""
        with self._changed:
            self._progress = fraction

    def log_checkpoint(self, row: CheckpointRow) -> None:
        """Queue a checkpoint."""
        checkpoint = CheckpointReport(
            uuid=row.uuid,
            batches=row.batches,
            path=row.path,
            num_bytes=row.num_bytes,
            metrics=_finite(row.metrics),
            time_s=row.time_s,
        )
        self._put(Report(run=self._run, checkpoints=[checkpoint]))

    def log_artifact(self, row: ArtifactRow) -> None:
        """Queue an artifact; of one that is logged again before it is sent, the newest is."""
        with self._changed:
            self._artifacts[row.name] = row
            self._changed.notify_all()

    def finish(self) -> None:
        """Deliver what is left, or leave it in the spool; returns within `drain_s`."""
        with self._changed:
            self._deadline = time.monotonic() + self._drain_s
            self._changed.notify_all()
        self._thread.join()
        self._spool.close()

    def _put(self, report: Report) -> None:
        with self._changed:
            self._spool.append(report)
            self._queue.append(report)
            if len(self._queue) == 1:
                self._changed.notify_all()

    def _await_decision(self) -> None:
        """Wait for the searcher's decision after a validation, so that a stopped trial trains no further batches.

        An unreachable control plane is not waited for: training continues, and the decision arrives later.
        """
        with self._changed:
            self._is_awaited = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_unreachable or not (self._queue or self._is_sending), DECISION_S)
            self._is_awaited = False

    @property
    def _is_closing(self) -> bool:
        return self._deadline < math.inf

    def _work(self) -> None:
        while True:
            report = self._next()
            if report is None:
                return
            self._deliver(report)
            self._upload_artifacts()
            with self._changed:
                self._is_sending = False
                self._changed.notify_all()

    def _next(self) -> Report | None:
        """What has accumulated, or an empty report that only asks whether to stop; None at the end."""
        with self._changed:
            if not self._is_closing and not self._queue and not self._artifacts:
                self._changed.wait(self._poll_s)
            if not self._is_closing and self._queue and not self._is_awaited:
                self._changed.wait(GATHER_S)
            if self._is_closing and not (self._queue or self._artifacts) and self._progress is None:
                return None
            taken, self._queue = self._queue[:BATCH_REPORTS], self._queue[BATCH_REPORTS:]
            progress, self._progress = self._progress, None
            self._is_sending = True
        return merged([*taken, Report(run=self._run, progress=progress)], run=self._run)

    def _deliver(self, report: Report) -> None:
        pause_s = 0.1
        while True:
            try:
                reply = self._send(report)
            except MasterUnreachable:
                if time.monotonic() >= self._deadline:
                    self._has_lost = True
                    return
                with self._changed:
                    self._is_unreachable = True
                    self._changed.notify_all()
                    self._changed.wait(min(pause_s, max(self._deadline - time.monotonic(), 0.01)))
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
            except RunEnded:
                self._stop.request("killed")
                self._has_lost = True
                return
            except TrekError as error:
                print(
                    f"trek: warning: the control plane refused a report, which stays in the spool: {error}", flush=True
                )
                self._has_lost = True
                return
            else:
                self._delivered(reply)
                return

    def _upload_artifacts(self) -> None:
        """Send what waits; the rest is sent later, and at the end told of."""
        with self._changed:
            waiting, self._artifacts = self._artifacts, {}
        while waiting:
            name, row = next(iter(waiting.items()))
            try:
                self._upload(row)
            except MasterUnreachable:
                if time.monotonic() < self._deadline:
                    break
                _tell_kept_here(row, "the control plane is unreachable")
            except (TrekError, OSError) as error:
                _tell_kept_here(row, str(error))
            del waiting[name]
        with self._changed:
            self._artifacts = {**waiting, **self._artifacts}
            if waiting:
                self._changed.wait(0.1)

    def _delivered(self, reply: ReportReply) -> None:
        if reply.stop:
            self._stop.request(reply.stop)
        with self._changed:
            self._is_unreachable = False
            if not self._queue and not self._has_lost:
                self._spool.clear()


def _tell_kept_here(row: ArtifactRow, why: str) -> None:
    print(f"trek: warning: artifact {row.name!r} is only at {row.path}: {why}", flush=True)


def _point(row: MetricRow) -> MetricPoint:
    try:
        return MetricPoint(
            group=row.group,
            batches=row.batches,
            epoch=row.epoch,
            metrics=_finite(row.metrics),
            time_s=row.time_s,
            duration_s=row.duration_s,
        )
    except ValidationError:
        names = [row.group, *row.metrics]
        raise InputError(
            f"names of metrics must have at most 200 characters and no control characters, got {names!r}."
        ) from None


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
