"""BackgroundLogger: a Logger whose destination may be slow, unreachable or hang, in a process of its own.

The training thread only appends to a bounded queue. A thread writes the queue to a child process, which imports the
destination's library, gathers calls and sends them; while it cannot send, the pipe and then the queue fill up, and what
does not fit is dropped. `close` waits a limited time and says once what was not recorded.

Owns the queue, the thread and the child. What is recorded where is the `Recorder`'s: see `recorder`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import IO, Any, ClassVar

from trek.train.loggers.base import MetricRow
from trek.train.loggers.sent import SentLogger

MAX_ROWS = 100_000
GATHER_S = 0.2
DRAIN_S = 30.0
_MAX_LINES = 2000


class BackgroundLogger(SentLogger):
    """Derive from it, name the `Recorder` class, and pass its settings, which must be JSON-able."""

    recorder: ClassVar[str]
    """The Recorder's class as `module:Class`; imported in the child only."""
    word: ClassVar[str]
    """What messages call the destination."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables of the child, where the user has not set them."""

    def __init__(
        self,
        *,
        max_rows: int = MAX_ROWS,
        drain_s: float = DRAIN_S,
        variables: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`variables` are more of the child's, for what its library reads from the environment alone."""
        super().__init__(self._put)
        self._variables = dict(variables or {})
        self._settings = settings
        self._max_rows = max_rows
        self._drain_s = drain_s
        self._queue: deque[Mapping[str, Any] | tuple[MetricRow, dict[str, float]]] = deque()
        self._num_put = self._num_dropped = self._num_recorded = 0
        self._problem = ""
        self._unread = b""
        self._closing = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name=f"trek-{self.word}", daemon=True)

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """Start the child, which works from now on."""
        self._put({"logger": "start", "name": name, "hparams": json.loads(json.dumps(dict(hparams), default=str))})
        environment = {**self.environment, **os.environ, **self._variables}
        self._child = _start_child(self.recorder, self._settings, environment=environment)
        self._thread.start()

    def log_metrics(self, row: MetricRow) -> None:
        """Queue the row, or drop it where too many wait."""
        if len(self._queue) < self._max_rows:
            self._num_put += 1
            self._queue.append((row, dict(row.metrics)))  # the caller may change its dict
        else:
            self._num_dropped += 1

    def close(self) -> None:
        """Record what is left, for a limited time."""
        child, self._child = self._child, None
        if child is None:
            return
        deadline = time.monotonic() + self._drain_s
        self._closing.set()
        self._thread.join(self._drain_s)
        try:
            child.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            child.kill()  # also ends a write that the thread is in
            child.wait()
        self._thread.join()
        self._read_answers(child)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # bytes for a child that is gone
                    pipe.close()
        self._tell_lost()

    def _put(self, message: Mapping[str, Any]) -> None:
        self._num_put += 1
        self._queue.append(message)

    def _work(self) -> None:
        """Write what has accumulated; at the end, everything, and then the end of the pipe."""
        child = self._child
        assert child is not None
        assert child.stdin is not None
        try:
            while True:
                is_last = self._closing.wait(GATHER_S)
                while self._queue:
                    num = min(len(self._queue), _MAX_LINES)
                    lines = [_line(self._queue.popleft()) for _ in range(num)]
                    _write_all(child.stdin, ("\n".join(lines) + "\n").encode())
                    self._read_answers(child)
                self._read_answers(child)
                if is_last:
                    child.stdin.close()
                    return
        except OSError:
            pass  # the child is gone: what it has not recorded is told of at the end

    def _read_answers(self, child: subprocess.Popen[bytes]) -> None:
        """The child says how many calls it has recorded, and what keeps it from recording."""
        assert child.stdout is not None
        with contextlib.suppress(BlockingIOError):  # nothing more to read
            while chunk := os.read(child.stdout.fileno(), 1 << 16):
                self._unread += chunk
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self._num_recorded = answer.get("recorded", self._num_recorded)
            self._problem = answer.get("problem", self._problem)

    def _tell_lost(self) -> None:
        lost = self._num_put - self._num_recorded + self._num_dropped
        if lost > 0:
            why = self._problem or "it did not answer in time"
            total = self._num_put + self._num_dropped
            print(
                f"trek: warning: {lost} of {total} reports to {self.word} were not recorded: {why}. "
                "The run itself has all of them.",
                file=sys.stderr,
                flush=True,
            )


def _start_child(
    recorder: str, settings: Mapping[str, Any], *, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", "trek.train.loggers.recording_process", recorder, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        bufsize=0,
    )
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    return child


def _line(call: Mapping[str, Any] | tuple[MetricRow, dict[str, float]]) -> str:
    if isinstance(call, tuple):
        row, metrics = call
        call = {"logger": "log_metrics", "row": {**vars(row), "metrics": metrics}}
    return json.dumps(call)


def _write_all(pipe: IO[bytes], data: bytes) -> None:
    """A pipe without a buffer may take a part only."""
    left = memoryview(data)
    while left:
        left = left[pipe.write(left) :]
