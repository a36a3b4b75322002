"""Frames: the one form in which processes of a job send each other messages. Checks no content.

head size, body size     two numbers of four and eight bytes, little-endian
head                     JSON, or a message of protobuf
body                     raw bytes that the head describes: of tensors, requests or answers

A frame is sent from where its parts lie and received into one piece of memory.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

MAX_HEAD_BYTES = 64 << 20
MAX_BODY_BYTES = 64 << 30
_SIZES = struct.Struct("<IQ")
_MAX_PARTS = 512
"""A system call takes 1024 buffers at most."""
_BUFFER_BYTES = 4096
_SEND_BUFFER_BYTES = 1 << 20
Part = bytes | bytearray | memoryview
Allocate = Callable[[int], memoryview]


def frame_parts(head: bytes, body: Sequence[Part] = ()) -> list[Part]:
    """The bytes of a frame, in parts that `send_parts` takes."""
    return [_SIZES.pack(len(head), sum(map(len, body))) + head, *body]


def pack(head: Any, body: Sequence[Part] = ()) -> bytes:
    """A frame with a head of JSON, in one piece."""
    return b"".join(frame_parts(json.dumps(head).encode(), body))


def unframed(frame: Part) -> tuple[bytes, memoryview]:
    """The head and the body of a frame; the body lies in `frame`."""
    start = _SIZES.size + _SIZES.unpack_from(frame)[0]
    return bytes(frame[_SIZES.size : start]), memoryview(frame)[start:]


def unpack(frame: Part) -> tuple[Any, memoryview]:
    """The head and the body that were passed to `pack`."""
    head, body = unframed(frame)
    return json.loads(head), body


def split(body: memoryview, sizes: Iterable[int]) -> list[memoryview]:
    """The parts of a body."""
    ends = list(accumulate(sizes, initial=0))
    return [body[start:end] for start, end in pairwise(ends)]


def send_parts(connection: socket.socket, parts: Sequence[Part], *, is_waiting: bool = True) -> list[Part]:
    """Send some of `parts`, and return the rest; BlockingIOError instead of waiting without `is_waiting`."""
    sent = connection.sendmsg(parts[:_MAX_PARTS], [], 0 if is_waiting else socket.MSG_DONTWAIT)
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


def send_all(connection: socket.socket, parts: Sequence[Part]) -> None:
    """Send all of `parts`."""
    while parts:
        parts = send_parts(connection, parts)


def send_message(connection: socket.socket, message: Any, body: Sequence[Part] = ()) -> None:
    """Send a value that JSON can hold, with a body."""
    send_all(connection, frame_parts(json.dumps(message).encode(), body))


def receive_message(connection: socket.socket) -> Any:
    """The next value that the other side sent; EOFError when it has closed the connection."""
    head, _ = receive(connection, max_body_bytes=0)
    return json.loads(head)


def receive(connection: socket.socket, *, max_body_bytes: int = MAX_BODY_BYTES) -> tuple[bytes, memoryview]:
    """The head and the body of the next frame, and no byte of what follows it.

    EOFError when the other side has closed the connection, or sent a frame that is too large.
    """
    head_size, body_size = _sizes(receive_exactly(connection, _SIZES.size), max_body_bytes=max_body_bytes)
    content = receive_exactly(connection, head_size + body_size)
    return bytes(content[:head_size]), content[head_size:]


def receive_exactly(connection: socket.socket, count: int) -> memoryview:
    """The next `count` bytes; EOFError when the other side has closed the connection."""
    content = _zeros(count)
    _fill(connection, content)
    return content


def set_send_buffer(connection: socket.socket) -> None:
    """Let a frame of usual size fit into a Unix socket, so that its sender need not wait for the receiver."""
    if connection.family == socket.AF_UNIX:  # TCP chooses by itself
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)


class FrameReader:
    """Receives all frames of one connection: several small ones with one system call."""

    def __init__(self, connection: socket.socket, *, allocate: Allocate | None = None) -> None:
        """`allocate` gives the memory of a body by its size; without it, every body has its own."""
        self._connection = connection
        self._allocate = allocate or _zeros
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        """What was received and not used yet lies from `_start` to `_end`."""
        self._start = self._end = 0

    def receive(self) -> tuple[bytes, memoryview]:
        """The head and the body of the next frame; EOFError as `receive`."""
        head_size, body_size = _sizes(self._take(_SIZES.size))
        head = bytes(self._take(head_size))
        body = self._allocate(body_size)
        begun = min(body_size, self._end - self._start)
        body[:begun] = self._take(begun)
        _fill(self._connection, body[begun:])
        return head, body

    def _take(self, count: int) -> memoryview:
        """The next `count` bytes, received together with what follows them."""
        if self._start == self._end:
            self._start = self._end = 0
        if count > len(self._buffer) - self._start:
            self._enlarge(count)
        while self._end - self._start < count:
            received = self._connection.recv_into(self._buffer[self._end :])
            if not received:
                raise EOFError
            self._end += received
        self._start += count
        return self._buffer[self._start - count : self._start]

    def _enlarge(self, count: int) -> None:
        left = self._buffer[self._start : self._end]
        self._buffer = memoryview(bytearray(max(count, _BUFFER_BYTES)))
        self._buffer[: len(left)] = left
        self._start, self._end = 0, len(left)


class FrameParser:
    """Takes bytes as they arrive, in an event loop, and gives whole frames."""

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_body_bytes = max_body_bytes
        self._held = bytearray()

    def feed(self, data: Part) -> Iterator[tuple[Any, memoryview]]:
        """The values of JSON and the bodies that are whole now; each owns its memory. EOFError as `receive`."""
        self._held += data
        while len(self._held) >= _SIZES.size:
            head_size, body_size = _sizes(self._held, max_body_bytes=self._max_body_bytes)
            end = _SIZES.size + head_size + body_size
            if len(self._held) < end:
                return
            frame, self._held = self._held[:end], self._held[end:]
            yield unpack(frame)


def _sizes(data: Part, *, max_body_bytes: int = MAX_BODY_BYTES) -> tuple[int, int]:
    head_size, body_size = _SIZES.unpack_from(data)
    if head_size > MAX_HEAD_BYTES or body_size > max_body_bytes:
        raise EOFError
    return head_size, body_size


def _fill(connection: socket.socket, target: memoryview) -> None:
    while len(target):
        count = connection.recv_into(target, 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        target = target[count:]


def _zeros(count: int) -> memoryview:
    return memoryview(bytearray(count))
