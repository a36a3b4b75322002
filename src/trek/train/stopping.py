"""StopRequest: how anyone (a signal, the control plane, a callback) asks a run to finish its batch and end."""

from __future__ import annotations

import threading
from typing import Literal

Reason = Literal["", "user", "signal", "preempted", "killed", "searcher", "early_stopping"]


class StopRequest:
    """A flag with a reason; the first reason stays. Safe to set from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason: Reason = ""

    @property
    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    def request(self, reason: Reason) -> None:
        """Ask the run to finish its batch, save, and end."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
