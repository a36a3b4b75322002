"""WorkerPool: the workers of one version of a model, and the requests that wait for them.

Batches are what already waits when a worker becomes idle: a lone request is never delayed. Requests of a worker that
dies are done again, each alone, so that the one which killed it takes no other with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from trek.errors import InputError
from trek.serve.model_source import ModelSource
from trek.serve.settings import ServeSettings
from trek.serve.tickets import Refused, Reply, Ticket, error_reply
from trek.serve.worker_link import WorkerLink

logger = logging.getLogger(__name__)
_CHECK_S = 1.0
_PING_AFTER_S = 5.0
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Before a worker is started again that ended before it had answered anything."""


class WorkerPool:
    """Workers that hold the same model. All methods are for the event loop that `start` ran in."""

    def __init__(
        self,
        source: ModelSource,
        *,
        version: str,
        settings: ServeSettings,
        on_batch: Callable[[int], None] = lambda size: None,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.version = version
        self.metadata: dict[str, Any] = {}
        self._settings = settings
        self._on_batch = on_batch
        self._on_death = on_death
        self._links: list[WorkerLink] = []
        self._waiting: deque[Ticket] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._numbers = itertools.count()

    async def start(self) -> None:
        """Start all workers; InputError if the model cannot be loaded."""
        self._start_task(self._check_forever(), self._tasks)
        try:
            found = await asyncio.gather(*(self._start_worker() for _ in range(self._settings.workers)))
        except InputError as error:
            await self.close()
            raise InputError(f"model {str(self.source)!r} cannot be loaded: {error}") from error
        self.metadata = found[0]

    @property
    def num_ready(self) -> int:
        """Workers that are alive and hold the model."""
        return sum(link.is_ready for link in self._links)

    @property
    def num_waiting(self) -> int:
        """Requests that no worker has yet."""
        return len(self._waiting)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that hold the model."""
        return [link.pid for link in self._links if link.is_ready]

    def submit(self, ticket: Ticket) -> None:
        """Take a request; Refused if too many wait."""
        if len(self._waiting) >= self._settings.max_queue:
            message = f"{len(self._waiting)} requests are waiting already. Try again later."
            raise Refused(error_reply(429, message, retry_after_s=1))
        self._waiting.append(ticket)
        self._dispatch()

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits for the answer any more."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        for link in self._links:
            if ticket.pieces is not None and ticket in link.batch:
                link.stop_stream()

    async def drain(self) -> None:
        """Answer what has been taken, then end the workers. Nothing more may be submitted."""
        while self._waiting or any(link.batch for link in self._links):
            await asyncio.sleep(0.01)
        await self.close()

    async def close(self) -> None:
        """End the workers now; what still waits is refused."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in list(self._links)))
        while self._links:  # until asyncio has told of each
            await asyncio.sleep(0.001)
        await asyncio.gather(*self._reaping)
        while self._waiting:
            self._waiting.popleft().answer(_unavailable("the server is shutting down"))

    # -- requests

    def _dispatch(self) -> None:
        for link in self._links:
            if self._waiting and link.is_idle:
                batch = take_batch(self._waiting, self._settings.batch)
                self._on_batch(len(batch))
                link.submit(batch)

    # -- workers

    async def _start_worker(self) -> dict[str, Any]:
        link = WorkerLink(on_change=self._dispatch, on_end=self._take_back)
        self._links.append(link)
        metadata = await link.start(self._worker_settings(), threads=self._settings.num_threads)
        self._dispatch()
        return metadata

    def _worker_settings(self) -> Mapping[str, Any]:
        chosen = self._settings
        return {
            "op": "load",
            "source": self.source.to_plain(),
            "device": chosen.device,
            "number": next(self._numbers),
            "max_rows": chosen.batch,
            "model": chosen.name,
            "version": self.version,
        }

    def _take_back(self, link: WorkerLink) -> None:
        """A worker has ended: its requests go back to the front of the queue, and another one is started."""
        self._links.remove(link)
        tickets, link.batch = link.batch, []
        for ticket in reversed(tickets):
            if ticket.may_retry() and not self._is_closed:
                self._waiting.appendleft(ticket)
            else:
                ticket.answer(_unavailable("the worker ended while it worked on this request"))
        if not self._is_closed:
            link.kill()
        self._start_task(link.close(), self._reaping)
        if link.metadata and not self._is_closed:
            logger.warning("a worker of version %s ended; another one is started", self.version)
            self._on_death()
            self._start_task(self._replace(), self._tasks)
        self._dispatch()

    async def _replace(self) -> None:
        for pause_s in itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1])):
            await asyncio.sleep(pause_s)
            try:
                await self._start_worker()
                return
            except InputError as error:
                logger.error("a worker of version %s cannot be started: %s", self.version, error)

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            for link in list(self._links):
                if not link.check(timeout_s=self._settings.timeout_s, ping_after_s=_PING_AFTER_S):
                    logger.error("worker %d does not answer, and is ended", link.pid)
                    for ticket in link.batch:
                        ticket.answer(error_reply(504, f"no answer after {self._settings.timeout_s:g} s."))
                    link.is_ready = False
                    link.kill()

    def _start_task(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def take_batch(waiting: deque[Ticket], most: int) -> list[Ticket]:
    """The requests that are worked on together next: the first, and those behind it that may share a batch with it."""
    batch = [waiting.popleft()]
    while waiting and len(batch) < most and not batch[0].is_alone and not waiting[0].is_alone:
        batch.append(waiting.popleft())
    return batch


def _unavailable(reason: str) -> Reply:
    return error_reply(503, f"{reason}. Try again.", retry_after_s=1)
