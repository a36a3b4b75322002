"""PushNumbers: the numbers that a client gives its pushes.

A number belongs to one push, and is used up once it was tried: what came of a push that failed is not known, since some
servers may have applied it. Only the same push goes on under its number, so that nothing is applied twice.
"""

from __future__ import annotations

from collections.abc import Callable


class PushNumbers:
    """Numbers from the one after the last that servers know."""

    def __init__(self, last_known: Callable[[], int]) -> None:
        self._last_known = last_known
        self._last: int | None = None
        self._tried: bytes | None = None
        """The digest of a push that may be tried again under the last number; empty: any push may."""

    def take(self, digest: bytes) -> int:
        """The number of a push with this digest."""
        if self._last is None:
            self._last = self._last_known()
        if self._tried is None or self._tried not in (digest, b""):
            self._last += 1
        self._tried = digest
        return self._last

    def settle(self, *, is_accepted: bool) -> None:
        """The push with the last number was accepted, or rejected: then its batch is pushed anew under that number."""
        self._tried = None if is_accepted else b""
