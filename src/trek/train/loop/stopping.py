"""Stopping a run early: a signal, the control plane or a callback requests it, and the loop checks the request."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

Reason = Literal["", "user", "signal", "preempted", "killed", "searcher", "early_stopping"]

FINAL_REASONS: tuple[Reason, ...] = ("user", "early_stopping")
"""The code of the run decided to end it: it ends as at its full length, with a validation and a checkpoint."""


class StopRequest:
    """A flag with a reason; the first reason is kept. Safe to set from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._is_set = False
        self.reason: Reason = ""

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._is_set

    def request(self, reason: Reason) -> None:
        """Ask the run to finish its batch, save, and end."""
        if not self._is_set:
            self.reason = reason
            self._is_set = True


class Stopped(SystemExit):
    """Raised from a training loop that was asked to stop, after saving. If uncaught, it ends the program silently."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(130 if reason == "signal" else 0)
        self.reason = reason


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Within the block, SIGTERM and the first Ctrl-C request a stop; a second Ctrl-C interrupts at once.

    Only the main thread can handle signals; in other threads the block has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.request("signal")

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
