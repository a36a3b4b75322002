"""Rows from the tasks of a Ray cluster straight to the process that reads them, past the object store.

A task connects to this process, proves that it knows the executor's secret, and sends its partition as an Arrow IPC
stream. Threads receive ahead of the reader up to a limit; beyond it the tasks wait, and their CPUs are lent to others,
whose rows may be needed first. A task that dies is run again by Ray, connects again and sends the same rows again, of
which those that were received are skipped.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import ray
from ray.exceptions import RayError

from trek.data.execution.base import Stream
from trek.errors import OutsideError
from trek.wire.connections import connect, prove, shut
from trek.wire.frames import receive_message, send_message
from trek.wire.secret import MAX_UNAUTHENTICATED, AuthenticationError

AHEAD_BYTES = 256 << 20
"""Rows that wait in this process for their reader, of all partitions that one pass reads."""
_REACH_S = 20.0
"""How long a task tries to connect."""
_BUSY_S = 1.0
"""How long a task that cannot send keeps its CPUs."""
_ROWS, _ROOM = "rows", "room"
"""What a task connects for: to send its rows, or to be told that there is room for more."""


@dataclass(frozen=True)
class Destination:
    """Where a task sends its rows."""

    host: str
    port: int
    secret: str
    number: int
    """Of the delivery."""

    def send(self, batches: Stream, *, give_way: Callable[[Destination], None]) -> int:
        """In a task: all batches, in order; their number. ConnectionError once nobody wants them any more.

        `give_way` is called where there has been no room for a while; it may wait until `wait_for_room` returns in
        another process.
        """
        with self._connected() as connection:
            send_message(connection, [_ROWS, self.number])
            receive_message(connection)
            num_sent, writer = 0, None
            for batch in batches:
                writer = writer or pa.ipc.new_stream(_Outgoing(connection, partial(give_way, self)), batch.schema)
                writer.write_batch(batch)
                num_sent += 1
            if writer is not None:
                writer.close()
        return num_sent

    def wait_for_room(self) -> None:
        """Return once the delivery takes more rows, or nobody wants them any more."""
        with self._connected() as connection, contextlib.suppress(EOFError):
            send_message(connection, [_ROOM, self.number])
            receive_message(connection)

    def _connected(self) -> socket.socket:
        try:
            return connect(self.host, self.port, secret=self.secret, timeout_s=_REACH_S)
        except ConnectionError as error:
            here = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            raise OutsideError(
                f"node {here} of the Ray cluster cannot reach the process that reads the rows: {error}. "
                "Let the nodes of the cluster connect to each other at all ports."
            ) from error


class Room:
    """How much one pass may receive ahead of its reader."""

    def __init__(self) -> None:
        self.num_bytes = 0

    @property
    def is_left(self) -> bool:
        """Whether more rows may wait."""
        return self.num_bytes < AHEAD_BYTES


class Delivery:
    """The rows of one partition, which a task sends."""

    def __init__(self, receiver: Receiver, number: int, room: Room) -> None:
        self.number = number
        self.is_over = False
        """Whether the task has ended: nothing more comes."""
        self.receiver = receiver
        self.room = room
        self._changed = receiver.changed
        self._ready: deque[pa.RecordBatch] = deque()
        self._num_received = 0
        self._connection: socket.socket | None = None
        self._task: Any = None
        self._outcome: Future[bytes] | None = None

    def watch(self, task: Any) -> None:
        """The task that sends the rows, and whose result is a pickled answer."""
        self._task = task
        outcome: Future[bytes] = task.future()
        self._outcome = outcome
        outcome.add_done_callback(self._end)

    def _end(self, outcome: Future[bytes]) -> None:
        with self._changed:
            self.is_over = True
            if outcome.exception() is not None and self._connection is not None:
                shut(self._connection)  # a node that died has not closed it
            self._changed.notify_all()

    def receive(self, connection: socket.socket) -> None:
        """In a thread: what comes through this connection, and no longer through an earlier one."""
        with self._changed:
            if self._connection is not None:
                shut(self._connection)
            self._connection = connection
        try:
            send_message(connection, "go")
            for index, batch in enumerate(pa.ipc.open_stream(_Incoming(connection))):
                if not self._add(index, batch, connection):
                    return
        except (OSError, pa.ArrowInvalid):
            pass  # the task has no rows, or has ended before its end: the answer says which
        finally:
            with self._changed:
                if self._connection is connection:
                    self._connection = None
                self._changed.notify_all()

    def _add(self, index: int, batch: pa.RecordBatch, connection: socket.socket) -> bool:
        """Keep a batch for the reader once there is room; False if the connection is not the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._connection is not connection or self._takes_more)
            if self._connection is not connection:
                return False
            if index >= self._num_received:
                self._ready.append(batch)
                self._num_received += 1
                self.room.num_bytes += batch.nbytes
                self._changed.notify_all()
            return True

    def wait_for_room(self) -> None:
        """Return once more rows are taken, or no task sends any."""
        with self._changed:
            self._changed.wait_for(lambda: self._connection is None or self._takes_more)

    @property
    def _takes_more(self) -> bool:
        """One batch always may wait, so that the partition being read never depends on what those after it hold."""
        return not self._ready or self.room.is_left

    @property
    def is_ready(self) -> bool:
        """Whether `take` does not wait: there are rows, or all have been taken, or no more can come."""
        return bool(self._ready) or (self.is_over and self._connection is None)

    def take(self) -> pa.RecordBatch | None:
        """The next rows, once it is ready; None after the last; the error, if the task failed."""
        with self._changed:
            if self._ready:
                batch = self._ready.popleft()
                self.room.num_bytes -= batch.nbytes
                self._changed.notify_all()
                return batch
        state, answer = self._answer()
        if state == "failed":
            raise answer
        if answer != self._num_received:
            raise OutsideError(
                f"of {answer} batches that a data task sent, {self._num_received} came: the connection to its node "
                "was lost. Run it again."
            )
        return None

    def _answer(self) -> tuple[str, Any]:
        assert self._outcome is not None
        try:
            found: tuple[str, Any] = cloudpickle.loads(self._outcome.result())
            return found
        except RayError as error:
            raise lost_task(error) from error

    def cancel(self) -> None:
        """The rows are not wanted: the task ends, if it has not yet."""
        with self._changed:
            for batch in self._ready:
                self.room.num_bytes -= batch.nbytes
            self._ready.clear()
            connection, self._connection = self._connection, None
            self._changed.notify_all()
        if connection is not None:
            shut(connection)
        if not self.is_over:
            ray.cancel(self._task)


class Receiver:
    """Listens for tasks. Safe to use from several threads."""

    def __init__(self, host: str) -> None:
        self.changed = threading.Condition()
        self._host = host
        self._secret = secrets.token_hex(16)
        self._deliveries: dict[int, Delivery] = {}
        self._num_expected = 0
        self._unauthenticated = threading.Semaphore(MAX_UNAUTHENTICATED)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        threading.Thread(target=self._accept, name="trek-rows", daemon=True).start()

    def expect(self, room: Room) -> tuple[Delivery, Destination]:
        """A new delivery, which shares `room` with others, and what its task must know."""
        with self.changed:
            number = self._num_expected
            self._num_expected += 1
            delivery = self._deliveries[number] = Delivery(self, number, room)
        return delivery, Destination(self._host, self._listener.getsockname()[1], self._secret, number)

    def forget(self, delivery: Delivery) -> None:
        """Take no more connections for a delivery."""
        with self.changed:
            self._deliveries.pop(delivery.number, None)

    def close(self) -> None:
        """Listen no longer."""
        shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            self._unauthenticated.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._receive, args=(connection,), name="trek-rows", daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            try:
                purpose, delivery = self._introduced(connection)
            finally:
                self._unauthenticated.release()
            if delivery is not None and purpose == _ROWS:
                delivery.receive(connection)
            elif delivery is not None:
                delivery.wait_for_room()
                send_message(connection, _ROOM)

    def _introduced(self, connection: socket.socket) -> tuple[str, Delivery | None]:
        """What a connection is for, and its delivery; None without the secret, and if the rows are no longer wanted."""
        try:
            prove(connection, self._secret, is_server=True)
            purpose, number = receive_message(connection)
        except (AuthenticationError, EOFError):
            return "", None
        with self.changed:
            return purpose, self._deliveries.get(number)


class _Incoming:
    """A connection as the file that Arrow reads from."""

    closed = False

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read(self, count: int) -> memoryview:
        """So many bytes, or fewer at the end."""
        # NumPy asks for large pages, which new memory of this size is much slower without.
        memory = np.empty(count, np.uint8).data
        filled = 0
        while filled < count and (got := self._connection.recv_into(memory[filled:])):
            filled += got
        return memory[:filled]


class _Outgoing:
    """A connection as the file that Arrow writes to."""

    closed = False

    def __init__(self, connection: socket.socket, give_way: Callable[[], None]) -> None:
        self._connection = connection
        self._give_way = give_way
        connection.settimeout(_BUSY_S)

    def write(self, content: Any) -> None:
        """All of it."""
        rest = memoryview(content).cast("B")
        while rest:
            try:
                rest = rest[self._connection.send(rest) :]
            except TimeoutError:
                self._give_way()

    def flush(self) -> None:
        """Nothing is held back."""


def lost_task(error: RayError) -> OutsideError:
    """The error for a task that Ray could not run to its end."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return OutsideError(
        f"a data task on the Ray cluster was lost, and could not be run again: {line}. "
        "Use more partitions if memory ran out, or a larger max_retries if nodes come and go."
    )
