"""ServerLink: one server as a client sees it. A lost connection is made anew, and what was not answered is repeated.

That is safe: reading changes nothing, and a push that was applied before is recognised by its number.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from trek.errors import InputError, OutsideError
from trek.ps.addresses import Address, current_address, open_connection
from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import fresh_memory, receive_envelope, request_parts
from trek.ps.protocol.tensors import Attachments, Bytes
from trek.wire.frames import FrameReader, Part, send_all, send_parts, set_send_buffer
from trek.wire.secret import AuthenticationError

_RETRY_S = 0.02
_CONNECT_S = 5.0
_MAX_REFUSALS = 5


class Moved(Exception):
    """The parameters are on other servers now."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__(f"the parameters have moved to {', '.join(addresses)}")
        self.addresses = list(addresses)


def send_out(links: Sequence[ServerLink]) -> None:
    """Send the requests that the links have begun, each as fast as its server takes it."""
    while waiting := {link.waiting.fileno(): link for link in links if link.waiting is not None}:
        poll = select.poll()
        for file in waiting:
            poll.register(file, select.POLLOUT)
        for file, _ in poll.poll():
            waiting[file].send_on()


class ServerLink:
    """Requests to one server, one at a time: `begin`, `send_out`, `receive`."""

    def __init__(self, address: Address, *, secret: str, patience_s: float) -> None:
        self.address = address
        self._first_address = address
        self._secret = secret
        self._patience_s = patience_s
        self._connection: socket.socket | None = None
        self._frames: FrameReader | None = None
        self._lock = threading.Lock()
        self._request: tuple[pb.Envelope, Attachments | None] | None = None
        self._unsent: list[Part] = []
        self._num_refusals = 0

    def begin(self, envelope: pb.Envelope, attached: Attachments | None = None) -> None:
        """Have a request; `send_out`, then `receive` must follow."""
        self._lock.acquire()
        self._request = (envelope, attached)
        try:
            connection = self._connected()
            self._unsent = request_parts(envelope, attached)
            self._send_on(connection)
        except (OSError, OutsideError):
            self._drop()  # `receive` tries again, and raises what is still wrong then
        except BaseException:
            self._end()
            raise

    @property
    def waiting(self) -> socket.socket | None:
        """The connection that does not take more of the request now; None if nothing is left to send."""
        return self._connection if self._unsent else None

    def send_on(self) -> None:
        """Send as much of the request as the connection takes without waiting."""
        assert self._connection is not None
        try:
            self._send_on(self._connection)
        except OSError:
            self._drop()

    def _send_on(self, connection: socket.socket) -> None:
        try:
            while self._unsent:
                self._unsent = send_parts(connection, self._unsent, is_waiting=False)
        except BlockingIOError:
            return

    def receive(self) -> tuple[pb.Envelope, Bytes]:
        """The answer to what was sent. OutsideError when the server cannot be reached for too long."""
        try:
            answer, body = self._received()
        finally:
            self._end()
        if answer.WhichOneof("message") == "failure":
            if answer.failure.moved_to:
                raise Moved(answer.failure.moved_to)
            kind = InputError if answer.failure.is_input else OutsideError
            raise kind(answer.failure.message)
        return answer, body

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._drop()

    def _received(self) -> tuple[pb.Envelope, Bytes]:
        assert self._request is not None
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                if self._connection is None:
                    send_all(self._connected(), request_parts(*self._request))
                assert self._frames is not None
                return receive_envelope(self._frames)
            except (OSError, EOFError) as error:
                self._drop()
                if time.monotonic() >= deadline:
                    host, port = self.address
                    raise OutsideError(
                        f"the parameter server at {host}:{port} did not answer for {self._patience_s:g} s: "
                        f"{error or 'it closed the connection'}."
                    ) from error
                time.sleep(_RETRY_S)

    def _connected(self) -> socket.socket:
        """The connection, made if there is none."""
        if self._connection is None:
            self.address = current_address(self._first_address)
            try:
                self._connection = open_connection(self.address, secret=self._secret, timeout_s=_CONNECT_S)
            except AuthenticationError as error:
                self._refused(error)
            set_send_buffer(self._connection)
            self._frames = FrameReader(self._connection, allocate=fresh_memory)
        self._num_refusals = 0
        return self._connection

    def _refused(self, error: AuthenticationError) -> NoReturn:
        """A server that ends while somebody connects looks as one with another secret, but not again and again."""
        self._num_refusals += 1
        if self._num_refusals < _MAX_REFUSALS:
            raise ConnectionError("the server refused the secret, or ended") from error
        host, port = self.address
        raise OutsideError(
            f"the process at {host}:{port} has another secret than this client. Pass the secret that the servers were "
            "started with."
        ) from error

    def _end(self) -> None:
        self._request = None
        self._lock.release()

    def _drop(self) -> None:
        self._unsent = []
        if self._connection is not None:
            self._connection.close()
            self._connection = None
