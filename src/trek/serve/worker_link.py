"""WorkerLink: one worker process, seen from the front process. Sends it requests and takes its answers.

Starting others when it dies is up to `worker_pool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trek.errors import InputError
from trek.serve.tickets import Pieces, Reply, Ticket
from trek.wire.frames import FrameParser, pack, split

_GRACE_S = 5.0


class WorkerLink(asyncio.Protocol):
    """One worker. `on_change` is called when it becomes idle; `on_end`, once, when it has ended."""

    def __init__(self, *, on_change: Callable[[], None], on_end: Callable[[WorkerLink], None]) -> None:
        self._on_change = on_change
        self._on_end = on_end
        self._frames = FrameParser()
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._loaded: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pinged_s: float | None = None
        self._pausing: asyncio.Task[None] | None = None
        self._heard_s = time.monotonic()
        self.metadata: dict[str, Any] = {}
        self.batch: list[Ticket] = []
        """What it works on."""
        self.is_ready = False
        self.is_given_up = False

    async def start(self, settings: Mapping[str, Any], *, threads: int) -> dict[str, Any]:
        """Start the process and wait until its model is loaded; returns what the model takes and returns."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "trek.serve.worker_process", str(theirs.fileno()), str(os.getpid())]
            variables = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=variables
            )
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        self._write(pack(settings))
        self.metadata = await self._loaded
        return self.metadata

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """Whether it can take requests."""
        return self.is_ready and not self.batch

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Give it requests, which it answers together; or one stream."""
        self.batch = list(tickets)
        self._heard_s = time.monotonic()
        first = self.batch[0]
        if first.pieces is not None:
            self._write(pack({"op": "stream", "codec": first.codec, "headers": first.headers}, [first.body]))
            return
        items = [{"codec": one.codec, "headers": one.headers, "size": len(one.body)} for one in self.batch]
        self._write(pack({"op": "infer", "items": items}, [one.body for one in self.batch]))

    def stop_stream(self) -> None:
        """Nobody reads the stream any more."""
        self._write(pack({"op": "stop"}))

    def check(self, *, timeout_s: float, ping_after_s: float) -> bool:
        """Whether it answers in time; one that has been idle for a while is asked."""
        now = time.monotonic()
        if self.batch:
            return self._pausing is not None or now - self._heard_s < timeout_s
        if self._pinged_s is not None:
            return now - self._pinged_s < timeout_s
        if self.is_ready and now - self._heard_s > ping_after_s:
            self._pinged_s = now
            self._write(pack({"op": "ping"}))
        return True

    def give_up(self) -> None:
        """End the process, which does not answer."""
        self.is_ready, self.is_given_up = False, True
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)

    async def close(self) -> None:
        """Let the process end by itself, and make sure that it does."""
        self.is_ready = False
        if self._transport is not None:
            self._transport.close()
        if self._process is not None:
            await asyncio.to_thread(self._reap)

    def _reap(self) -> None:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
            return
        self._process.kill()
        self._process.wait()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._heard_s, self._pinged_s = time.monotonic(), None
        for head, body in self._frames.feed(data):
            self._take(head, body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: the process has ended, or is about to."""
        self.is_ready = False
        if not self._loaded.done():
            self._loaded.set_exception(InputError("its process ended while it was loaded."))
        self._on_end(self)

    def _take(self, head: dict[str, Any], body: memoryview) -> None:
        operation = head.pop("op")
        if operation == "answers":
            self._answer(head["items"], body)
        elif operation == "piece":
            self._pass_on(bytes(body))
        elif operation == "end":
            self._end_stream(head)
        elif operation == "ready":
            self.is_ready = True
            self._settle(result=head)
        elif operation == "failed":
            self._settle(error=InputError(head["error"]))

    def _settle(self, *, result: dict[str, Any] | None = None, error: InputError | None = None) -> None:
        if self._loaded.done():  # whoever waited has gone
            return
        if error is not None:
            self._loaded.set_exception(error)
        else:
            self._loaded.set_result(result or {})

    def _answer(self, items: Sequence[Any], body: memoryview) -> None:
        tickets, self.batch = self.batch, []
        self._on_change()  # it gets its next requests before anyone reads the answers to these
        for ticket, item, one in zip(tickets, items, split(body, [item[3] for item in items]), strict=True):
            ticket.answer(Reply(item[0], bytes(one), item[1], item[2]))

    def _pass_on(self, piece: bytes) -> None:
        for ticket in self.batch:
            assert ticket.pieces is not None
            ticket.has_begun = True
            ticket.pieces.add(piece)
            if ticket.pieces.is_full and self._pausing is None:
                self._pausing = asyncio.ensure_future(self._pause(ticket.pieces))

    async def _pause(self, pieces: Pieces) -> None:
        """Read no further until the stream's reader has caught up; the process then waits, too."""
        if self._transport is not None:
            self._transport.pause_reading()
            await pieces.room()
            self._heard_s = time.monotonic()
            self._transport.resume_reading()
        self._pausing = None

    def _end_stream(self, head: Mapping[str, Any]) -> None:
        tickets, self.batch = self.batch, []
        for ticket in tickets:
            error = head.get("error")
            ticket.answer(Reply(head.get("status", 200), error.encode() if error else json.dumps({}).encode()))
        self._on_change()

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)
