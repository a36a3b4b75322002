"""WorkerPool: the worker processes of this machine that hold one version of a model, and their replacement."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Any

from trek.errors import InputError
from trek.serve.model_pool import ModelPool
from trek.serve.tickets import Ticket
from trek.serve.worker_link import WorkerLink

logger = logging.getLogger(__name__)
_CHECK_S = 1.0
_PING_AFTER_S = 5.0
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Before a worker is started again that ended before it had answered anything."""


class WorkerPool(ModelPool):
    """Workers that are processes of this machine."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._links: list[WorkerLink] = []
        self._reaping: set[asyncio.Task[None]] = set()
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
    def pids(self) -> list[int]:
        """Process ids of the workers that hold the model."""
        return [link.pid for link in self._links if link.is_ready]

    def cancel(self, ticket: Ticket) -> None:
        """The caller has gone; a stream is ended."""
        super().cancel(ticket)
        for link in self._links:
            if ticket.pieces is not None and ticket in link.batch:
                link.stop_stream()

    async def close(self) -> None:
        """End the workers now; what still waits is refused."""
        self._is_closed = True
        await self._end_tasks()
        await asyncio.gather(*(link.close() for link in list(self._links)))
        while self._links:  # until asyncio has told of each
            await asyncio.sleep(0.001)
        await asyncio.gather(*self._reaping)
        self._refuse_all("the server is shutting down")

    # -- requests

    def _dispatch(self) -> None:
        for link in self._links:
            if self._waiting and link.is_idle:
                link.submit(self._next_batch())

    def _is_busy(self) -> bool:
        return any(link.batch for link in self._links)

    # -- workers

    async def _start_worker(self) -> dict[str, Any]:
        link = WorkerLink(on_change=self._dispatch, on_end=self._take_back)
        self._links.append(link)
        metadata = await link.start(self._worker_settings(), threads=self._settings.num_threads)
        self._extend_waits()
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
            "max_bytes": chosen.max_body_bytes,
            "model": chosen.name,
            "version": self.version,
        }

    def _take_back(self, link: WorkerLink) -> None:
        """A worker has ended: its requests go back to the front of the queue, and another one is started."""
        self._links.remove(link)
        if not link.is_given_up:
            self._extend_waits()
        tickets, link.batch = link.batch, []
        self._take_tickets_back(tickets)
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
            except InputError as error:
                logger.error("a worker of version %s cannot be started: %s", self.version, error)
                if not self.num_ready:
                    self._failure = f"no worker can be started: {str(error).rstrip('.')}"
                    self._refuse_all(self._failure)
            else:
                self._failure = None
                return

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            self._look_for_losses()

    def _look_for_losses(self) -> None:
        for link in self._links:
            if link.is_ready and not link.check(timeout_s=self._settings.timeout_s, ping_after_s=_PING_AFTER_S):
                logger.error("worker %d does not answer, and is ended", link.pid)
                self._give_up(link.batch)
                link.give_up()
                self._extend_waits()
