"""ModelPool: what holds one version of a model, and the requests that wait for it. One variant for each engine.

Contracts, for every ModelPool: all methods are for the event loop that `start` ran in. Batches are what already waits
when a process becomes idle, so a lone request is never delayed. Requests of a process that dies, or does not answer in
time, are done again, each alone, so that the one which is the cause takes no other with it; after a few deaths a
request is answered with 503, and with 504 when a process had it alone for too long. No request waits for ever: each
has a time within which it must be taken, and which begins again, a few times, when a process was lost to others.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from trek.registry import Registry
from trek.serve.model_source import ModelSource
from trek.serve.settings import ServeSettings
from trek.serve.tickets import MAX_ATTEMPTS, Refused, Reply, Ticket, error_reply

_MAX_EXTENSIONS = 2 * MAX_ATTEMPTS
"""How often a request gets its time to wait again: when a process is lost, and when it has been replaced."""


class ModelPool(ABC):
    """Processes that hold the same model."""

    def __init__(
        self,
        source: ModelSource,
        *,
        version: str,
        settings: ServeSettings,
        on_batch: Callable[[int], None] = lambda size: None,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_batch` is called with the size of every batch; `on_death`, when a process ended by itself."""
        self.source = source
        self.version = version
        self.metadata: dict[str, Any] = {}
        self._settings = settings
        self._on_batch = on_batch
        self._on_death = on_death
        self._waiting: deque[Ticket] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._failure: str | None = None
        """Why no process is there or can be started."""

    @abstractmethod
    async def start(self) -> None:
        """Start all processes; InputError if the model cannot be loaded."""

    @property
    @abstractmethod
    def num_ready(self) -> int:
        """Processes that are alive and hold the model."""

    @property
    def num_waiting(self) -> int:
        """Requests that nobody works on yet."""
        return len(self._waiting)

    @property
    def pids(self) -> list[int]:
        """Process ids of those that hold the model, if they are on this machine."""
        return []

    def submit(self, ticket: Ticket) -> None:
        """Take a request; Refused if too many wait, or no process can be started."""
        if self._failure is not None:
            raise Refused(unavailable(self._failure))
        if len(self._waiting) >= self._settings.max_queue:
            message = f"{len(self._waiting)} requests are waiting already. Try again later."
            raise Refused(error_reply(429, message, retry_after_s=1))
        self._waiting.append(ticket)
        self._start_timer(ticket)
        self._dispatch()

    def cancel(self, ticket: Ticket) -> None:
        """The caller has gone."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        ticket.stop_timer()
        ticket.answer(error_reply(499, "the caller has gone."))

    async def drain(self) -> None:
        """Answer what has been taken, then end the processes. Nothing more may be submitted."""
        while self._waiting or self._is_busy():
            await asyncio.sleep(0.01)
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """End the processes now; what still waits is refused."""

    @abstractmethod
    def _dispatch(self) -> None:
        """Give what waits to idle processes."""

    @abstractmethod
    def _look_for_losses(self) -> None:
        """Give up processes that do not answer in time, before a request is given up that may have waited for one."""

    @abstractmethod
    def _is_busy(self) -> bool:
        """Whether anybody works on a request."""

    def _next_batch(self) -> list[Ticket]:
        batch = take_batch(self._waiting, self._settings.batch, max_bytes=self._settings.max_body_bytes)
        for ticket in batch:
            ticket.stop_timer()
        if batch[0].attempts:
            for ticket in self._waiting:
                if ticket.attempts:  # they are tried one after the other: each waits for the one before
                    self._start_timer(ticket)
        self._on_batch(len(batch))
        return batch

    def _take_tickets_back(self, tickets: Sequence[Ticket]) -> None:
        """The requests of a process that has ended: to the front of the queue, or given up."""
        for ticket in reversed(tickets):
            if ticket.may_retry() and not self._is_closed:
                self._waiting.appendleft(ticket)
                self._start_timer(ticket)
            else:
                ticket.answer(unavailable("the worker ended while it worked on this request"))

    def _give_up(self, tickets: Sequence[Ticket]) -> None:
        """A process did not answer in time: that is due to the only request that it had, or to one of several."""
        if len(tickets) == 1:
            tickets[0].answer(error_reply(504, f"no answer after {self._settings.timeout_s:g} s."))

    def _start_timer(self, ticket: Ticket) -> None:
        ticket.stop_timer()
        ticket.timer = asyncio.get_running_loop().call_later(self._settings.timeout_s, self._expire, ticket)

    def _extend_waits(self) -> None:
        """A process was lost, or replaced: what waited for it gets its time again."""
        for ticket in self._waiting:
            self._extend(ticket)

    def _extend(self, ticket: Ticket) -> None:
        if ticket.num_extensions < _MAX_EXTENSIONS:
            ticket.num_extensions += 1
            self._start_timer(ticket)

    def _expire(self, ticket: Ticket) -> None:
        expired = ticket.timer
        self._look_for_losses()
        if not self.num_ready and ticket.timer is expired:
            self._extend(ticket)
        if ticket.timer is not expired:
            return
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        ticket.answer(error_reply(504, f"no worker was free within {self._settings.timeout_s:g} s."))

    async def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _refuse_all(self, reason: str) -> None:
        while self._waiting:
            ticket = self._waiting.popleft()
            ticket.stop_timer()
            ticket.answer(unavailable(reason))

    def _start_task(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


POOLS: Registry[type[ModelPool]] = Registry(
    "model_pools",
    {"local": "trek.serve.worker_pool:WorkerPool", "ray": "trek.serve.ray_pool:RayPool"},
    word="engine",
    extras={"ray": "ray"},
    base="trek.serve.model_pool:ModelPool",
)


def take_batch(waiting: deque[Ticket], most: int, *, max_bytes: int) -> list[Ticket]:
    """The requests that are worked on together next: the first, and those behind it that may share a batch with it.

    Together they are no larger than the largest request may be alone.
    """
    batch = [waiting.popleft()]
    num_bytes = len(batch[0].body)
    while waiting and len(batch) < most and not batch[0].is_alone and not waiting[0].is_alone:
        num_bytes += len(waiting[0].body)
        if num_bytes > max_bytes:
            break
        batch.append(waiting.popleft())
    return batch


def unavailable(reason: str) -> Reply:
    """503, to be tried again soon."""
    return error_reply(503, f"{reason}. Try again.", retry_after_s=1)
