"""Stopping a run early: a signal, the control plane or a callback requests it, and the loop checks the request."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, TracebackType
from typing import Any, Literal

Reason = Literal["", "user", "signal", "interrupted", "preempted", "killed", "searcher", "early_stopping", "dismissed"]

FINAL_REASONS: tuple[Reason, ...] = ("user", "early_stopping")
"""The code of the run decided to end it: it ends as at its full length, with a validation and a checkpoint."""

SIGNAL_REASONS: tuple[Reason, ...] = ("signal", "interrupted")
"""SIGTERM, or Ctrl-C."""


class StopRequest:
    """A flag with a reason; the first reason is kept. Safe to set from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._is_set = False
        self._ignored_thread: int | None = None
        self.reason: Reason = ""

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._is_set

    def request(self, reason: Reason) -> None:
        """Ask the run to finish its batch, save, and end."""
        if self._ignored_thread == threading.get_ident() and reason not in SIGNAL_REASONS:
            return
        if not self._is_set:
            self.reason = reason
            self._is_set = True

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """Within the block, the code of this thread cannot ask for a stop; other threads and signals can."""
        self._ignored_thread = threading.get_ident()
        try:
            yield
        finally:
            self._ignored_thread = None


class Stopped(SystemExit):
    """Raised from a training loop that was asked to stop, after saving. If uncaught, it ends the program silently."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(130 if reason in SIGNAL_REASONS else 0)
        self.reason = reason


class Interrupted(Stopped, KeyboardInterrupt):
    """Raised when a run that was interrupted with Ctrl-C has been saved. If uncaught, it ends the program with 130."""

    def __init__(self) -> None:
        super().__init__("interrupted")


def stopped(reason: Reason) -> Stopped:
    """The exception that leaves a training loop for `reason`."""
    return Interrupted() if reason == "interrupted" else Stopped(reason)


class StopOnSignals(AbstractContextManager[None]):
    """Within the block, SIGTERM and the first Ctrl-C request a stop; a second Ctrl-C interrupts at once.

    It may be entered again inside of its own block. Only the main thread can handle signals; in other threads the block
    has no effect.
    """

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._depth = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0 and threading.current_thread() is threading.main_thread():
            before, self._before = self._before, {}
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop.request("interrupted" if number == signal.SIGINT else "signal")
