"""EventTopics: one look at something that changes, for all who listen to it.

A topic is looked at once per change, however many listen; while nothing is written to the store, no query is made.
It lives on the event loop, as long as somebody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable

from starlette.concurrency import run_in_threadpool

from trek.errors import TooManyRequests, TrekError

POLL_S = 0.5
MAX_LISTENERS = 500

Look = Callable[[], tuple[str, bool]]
"""The present text, and whether it will not change any more. Called on a thread."""


class Topic:
    """The newest text: `number` increases with each, and `is_ended` says that none will follow."""

    def __init__(self) -> None:
        self.number = 0
        self.text = ""
        self.is_ended = False
        self.num_listeners = 0
        self._news = asyncio.Event()

    async def wait(self, *, seen: int, timeout_s: float) -> None:
        """Return when there is another text than number `seen`, when the topic ends, or after `timeout_s`."""
        if self.number == seen and not self.is_ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()

    async def follow(self, look: Look, *, version: Callable[[], int], poll_s: float) -> None:
        """Publish each new text until the last one, or until looking fails."""
        looked_at = None
        try:
            while not self.is_ended:
                if (now := version()) != looked_at:
                    looked_at = now
                    self._publish(*await run_in_threadpool(look))
                await asyncio.sleep(poll_s)
        except TrekError:
            pass  # deleted, or the store is unavailable: whoever listens asks again, and is told why
        finally:
            self.is_ended = True
            self._news.set()

    def _publish(self, text: str, is_last: bool) -> None:
        self.is_ended = is_last
        if text != self.text or is_last:
            self.text, self.number = text, self.number + 1
            self._news.set()
            self._news = asyncio.Event()


class EventTopics:
    """Topics by key. `version` changes whenever anything they show may have changed."""

    def __init__(self, *, version: Callable[[], int], poll_s: float = POLL_S) -> None:
        self._version = version
        self._poll_s = poll_s
        self._topics: dict[Hashable, tuple[Topic, asyncio.Task[None]]] = {}

    @property
    def num_listeners(self) -> int:
        """How many listen at present."""
        return sum(topic.num_listeners for topic, _ in self._topics.values())

    def check_room(self) -> None:
        """TooManyRequests if no one else may listen."""
        if self.num_listeners >= MAX_LISTENERS:
            raise TooManyRequests(f"{MAX_LISTENERS} event streams are open already. Try again.", retry_after_s=10.0)

    @contextlib.asynccontextmanager
    async def listen(self, key: Hashable, look: Look) -> AsyncIterator[Topic]:
        """The topic with this key; the first who listens starts it with `look`, the last who leaves ends it."""
        if key not in self._topics or self._topics[key][0].is_ended:
            topic = Topic()
            follow = topic.follow(look, version=self._version, poll_s=self._poll_s)
            self._topics[key] = topic, asyncio.create_task(follow)
        topic, task = self._topics[key]
        topic.num_listeners += 1
        try:
            yield topic
        finally:
            topic.num_listeners -= 1
            if topic.num_listeners == 0:
                task.cancel()
                if self._topics.get(key) == (topic, task):
                    del self._topics[key]
