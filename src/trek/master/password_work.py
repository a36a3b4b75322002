"""PasswordWork: runs what hashes passwords, a few at a time.

Each takes 64 MiB and a good part of a second of all cores. They wait on threads of their own, so that requests that
need no password are not held up, and too many of them are refused at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from trek.errors import TooManyRequests

P = ParamSpec("P")
T = TypeVar("T")
MAX_RUNNING = 2
MAX_WAITING = 30


class PasswordWork:
    """To be used from one event loop."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(MAX_RUNNING)
        self._num_pending = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` on a thread; TooManyRequests if too many are waiting."""
        if self._num_pending >= MAX_RUNNING + MAX_WAITING:
            raise TooManyRequests("too many logins at the same time. Try again in 2 seconds.", retry_after_s=2.0)
        self._num_pending += 1
        try:
            return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._limiter)
        finally:
            self._num_pending -= 1
