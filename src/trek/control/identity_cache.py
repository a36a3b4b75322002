"""IdentityCache: whom tokens were found to belong to moments ago, so that a request needs no query for it.

It is cleared whenever users or tokens change here. Entries also expire, so that a change which was made directly in
the database takes effect within seconds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

from trek.system.clock import Clock

T = TypeVar("T")
MAX_AGE_S = 5.0
MAX_ENTRIES = 10_000


@dataclass(frozen=True)
class _Entry(Generic[T]):
    identity: T
    expires_s: float
    found_s: float


class IdentityCache(Generic[T]):
    """Identities by the hash of their token. Safe to use from several threads."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry[T]] = {}
        self._generation = 0
        self._lock = threading.Lock()

    @property
    def generation(self) -> int:
        """Changes with every `clear`; read it before the query whose result is to be stored."""
        return self._generation

    def get(self, digest: str) -> T | None:
        """The identity; None if it is unknown, outdated, or its token has expired."""
        entry = self._entries.get(digest)
        if entry is None or entry.expires_s < self._clock.now_s():
            return None
        return entry.identity if self._clock.monotonic_s() - entry.found_s < MAX_AGE_S else None

    def put(self, digest: str, identity: T, *, expires_s: float, generation: int) -> None:
        """Store what a query found, unless something changed since `generation`."""
        entry = _Entry(identity, expires_s, self._clock.monotonic_s())
        with self._lock:
            if generation != self._generation:
                return
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.clear()
            self._entries[digest] = entry

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._generation += 1
            self._entries.clear()
