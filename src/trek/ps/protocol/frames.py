"""Frames: a message and the bytes of its tensors over a socket, see `pserver.proto`.

Tensors are sent from where they lie and received into one fresh buffer, which then is their memory.
"""

from __future__ import annotations

import socket
import struct

import numpy as np
from google.protobuf.message import DecodeError

from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Attachments, Bytes

_HEADER = struct.Struct("<IQ")
MAX_MESSAGE_BYTES = 64 << 20
MAX_BODY_BYTES = 64 << 30
_MAX_PARTS = 512
"""A system call takes 1024 buffers at most."""
_HEAD_BYTES = 4096
_MAX_KEPT_BYTES = 64 << 20
_SEND_BYTES = 1 << 20
NO_BODY: Bytes = np.empty(0, np.uint8)


def send_frame(connection: socket.socket, envelope: pb.Envelope, attached: Attachments | None = None) -> None:
    """Send a message with its tensors."""
    parts = frame_parts(envelope, attached)
    while parts:
        parts = send_parts(connection, parts)


def send_parts(connection: socket.socket, parts: list[memoryview], *, is_waiting: bool = True) -> list[memoryview]:
    """Send some of `parts`, and return the rest. BlockingIOError if that would mean to wait, and nobody wants to."""
    sent = connection.sendmsg(parts[:_MAX_PARTS], [], 0 if is_waiting else socket.MSG_DONTWAIT)
    return _left(parts, sent)


class FrameReader:
    """Receives the frames of one connection."""

    def __init__(self, connection: socket.socket, *, is_reusing: bool) -> None:
        """With `is_reusing`, the bytes of a frame are valid until the next one is received, in the same memory."""
        self._connection = connection
        self._is_reusing = is_reusing
        self._kept = NO_BODY
        self._head = memoryview(bytearray(_HEAD_BYTES))
        """What was received and not used yet lies from `_start` to `_end`."""
        self._start = self._end = 0

    def receive(self) -> tuple[pb.Envelope, Bytes]:
        """The next message and its bytes; EOFError if the other side closed the connection or sent no frame."""
        size, body_size = _HEADER.unpack(self._take(_HEADER.size))
        if size > MAX_MESSAGE_BYTES or body_size > MAX_BODY_BYTES:
            raise EOFError
        try:
            envelope = pb.Envelope.FromString(bytes(self._take(size)))
        except DecodeError as error:
            raise EOFError from error
        body = self._memory(body_size)
        begun = min(body_size, self._end - self._start)
        body.data[:begun] = self._take(begun)
        _fill(self._connection, body.data[begun:])
        return envelope, body

    def _take(self, count: int) -> memoryview:
        """The next `count` bytes, received together with what follows them: a system call less."""
        if self._start == self._end:
            self._start = self._end = 0
        if count > len(self._head) - self._start:
            self._make_room(count)
        while self._end - self._start < count:
            received = self._connection.recv_into(self._head[self._end :])
            if not received:
                raise EOFError
            self._end += received
        self._start += count
        return self._head[self._start - count : self._start]

    def _make_room(self, count: int) -> None:
        left = self._head[self._start : self._end]
        self._head = memoryview(bytearray(max(count, _HEAD_BYTES)))
        self._head[: len(left)] = left
        self._start, self._end = 0, len(left)

    def _memory(self, count: int) -> Bytes:
        if not count:
            return NO_BODY
        if not self._is_reusing or count > _MAX_KEPT_BYTES:
            return np.empty(count, np.uint8)
        if count > len(self._kept):
            self._kept = np.empty(count, np.uint8)
        return self._kept[:count]


def widen(connection: socket.socket) -> None:
    """Let a frame of usual size lie in a Unix socket, so that its sender need not wait for the receiver."""
    if connection.family == socket.AF_UNIX:  # TCP chooses by itself
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)


def frame_parts(envelope: pb.Envelope, attached: Attachments | None = None) -> list[memoryview]:
    """The bytes of a frame, in pieces."""
    message = envelope.SerializeToString()
    if attached is None:
        return [memoryview(_HEADER.pack(len(message), 0) + message)]
    return [memoryview(_HEADER.pack(len(message), attached.num_bytes) + message), *attached.parts]


def _left(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What remains of `parts` after their first `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


def _fill(connection: socket.socket, target: memoryview) -> None:
    while len(target):
        count = connection.recv_into(target, 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        target = target[count:]
