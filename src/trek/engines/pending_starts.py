"""PendingStarts: the starts of gangs that an Engine has under way, what each waits for, and which were cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from trek.engines.base import Handle
from trek.errors import StartCancelled


class PendingStart:
    """One start. The thread that starts tells and checks; others read and cancel."""

    def __init__(self) -> None:
        self.waits_for = ""
        """What it waits for, in words; empty if it does not wait."""
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """Have the next `check` give up."""
        self._is_cancelled.set()

    def check(self) -> None:
        """Raise StartCancelled if it was cancelled."""
        if self._is_cancelled.is_set():
            raise StartCancelled("the start was cancelled before the cluster had room.")


class PendingStarts:
    """See the module. Used by several threads."""

    def __init__(self) -> None:
        self._by_handle: dict[Handle, PendingStart] = {}

    @contextmanager
    def begin(self, handle: Handle | None) -> Iterator[PendingStart]:
        """A start for the block; one without a handle cannot be named by others."""
        pending = PendingStart()
        if handle is not None:
            self._by_handle[handle] = pending
        try:
            yield pending
        finally:
            self._by_handle.pop(handle, None)

    def cancel(self, handle: Handle) -> None:
        """Cancel a start that is under way."""
        if (pending := self._by_handle.get(handle)) is not None:
            pending.cancel()

    def waits_for(self, handle: Handle) -> str:
        """What a start waits for; empty if it does not, or is over."""
        pending = self._by_handle.get(handle)
        return "" if pending is None else pending.waits_for
