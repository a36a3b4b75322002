"""Frames: a message and the bytes of its tensors over a socket or into a file, see `pserver.proto`.

Tensors are sent from where they lie and received into one fresh buffer, which then is their memory.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import BinaryIO

import numpy as np

from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Attachments, Bytes

_HEADER = struct.Struct("<IQ")
MAX_MESSAGE_BYTES = 64 << 20
MAX_BODY_BYTES = 64 << 30
_MAX_PARTS = 512
"""A system call takes 1024 buffers at most."""
NO_BODY: Bytes = np.empty(0, np.uint8)


def send_frame(connection: socket.socket, envelope: pb.Envelope, attached: Attachments | None = None) -> None:
    """Send a message with its tensors."""
    parts = frame_parts(envelope, attached)
    while parts:
        sent = connection.sendmsg(parts[:_MAX_PARTS])
        parts = _left(parts, sent)


def receive_frame(connection: socket.socket) -> tuple[pb.Envelope, Bytes]:
    """The next message and its bytes; EOFError when the other side has closed the connection."""
    header = bytearray(_HEADER.size)
    _fill(connection, memoryview(header))
    size, body_size = _HEADER.unpack(header)
    if size > MAX_MESSAGE_BYTES or body_size > MAX_BODY_BYTES:
        raise EOFError
    message = bytearray(size)
    _fill(connection, memoryview(message))
    body: Bytes = np.empty(body_size, np.uint8) if body_size else NO_BODY
    _fill(connection, body.data)
    return pb.Envelope.FromString(bytes(message)), body


def write_frame(file: int, envelope: pb.Envelope, body: Bytes) -> int:
    """Append a message and its bytes to an open file; the number of bytes written."""
    message = envelope.SerializeToString()
    parts = [memoryview(_HEADER.pack(len(message), len(body)) + message), body.data]
    total = sum(map(len, parts))
    while parts:
        parts = _left(parts, os.writev(file, parts))
    return total


def read_frame(file: BinaryIO) -> tuple[pb.Envelope, Bytes] | None:
    """The next message of a file; None at its end, or where the last one was not written completely."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    size, body_size = _HEADER.unpack(header)
    message, body = file.read(size), bytearray(file.read(body_size))
    if len(message) < size or len(body) < body_size:
        return None
    return pb.Envelope.FromString(message), np.frombuffer(body, np.uint8) if body_size else NO_BODY


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
        count = connection.recv_into(target)
        if not count:
            raise EOFError
        target = target[count:]
