"""ChangeFeed: what was written to the store, by name, for pages that fetch again what they show.

No change is lost: each event carries a number, and whoever comes back with the last one it saw is told what was written
since, or that anything may have changed. Events hold no content, so that all who listen may get the same ones.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from trek.control.store import Subject
from trek.errors import TooManyRequests

POLL_S = 0.25
CHECK_POLLS = 4
KEEP_ALIVE_POLLS = 60
MAX_LISTENERS = 500

Changes = Callable[[int], tuple[int, list[Subject] | None]]


class ChangeFeed:
    """The feed of one store, whose numbers begin anew with this process."""

    def __init__(self, changes: Changes, *, poll_s: float = POLL_S) -> None:
        self._changes = changes
        self._poll_s = poll_s
        self._name = secrets.token_hex(4)
        self._num_listeners = 0

    def check_room(self) -> None:
        """TooManyRequests if no one else may listen."""
        if self._num_listeners >= MAX_LISTENERS:
            raise TooManyRequests(f"{MAX_LISTENERS} pages are open already. Try again.", retry_after_s=10.0)

    async def follow(self, last_seen: str, *, is_open: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """Server-sent events until `is_open` is false; `last_seen` is the id of the last one the reader got."""
        self._num_listeners += 1
        try:
            async for event in self._events(self._number(last_seen), is_open=is_open):
                yield event
        finally:
            self._num_listeners -= 1

    async def _events(self, seen: int, *, is_open: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        polls, is_first = 0, True
        while polls % CHECK_POLLS or await is_open():
            number, subjects = self._changes(seen)
            if number != seen or is_first:
                yield self._event(number, None if seen < 0 else subjects)
                seen, is_first = number, False
            elif polls % KEEP_ALIVE_POLLS == 0:
                yield ": keep-alive\n\n"
            polls += 1
            await asyncio.sleep(self._poll_s)

    def _event(self, number: int, subjects: Iterable[Subject] | None) -> str:
        names = None if subjects is None else [f"{kind}:{owner}" for kind, owner in subjects]
        return f"id: {self._name}-{number}\nevent: change\ndata: {json.dumps({'subjects': names})}\n\n"

    def _number(self, event_id: str) -> int:
        """The number in an id of this feed; -1 for that of another one."""
        name, _, number = event_id.partition("-")
        return int(number) if name == self._name and number.isascii() and number.isdigit() else -1
