"""Frames between the front process and its workers: a head of plain values, and raw bytes after it.

head length, body length     two numbers of four and eight bytes, little-endian
head                         JSON
body                         the bodies of requests or answers, one after the other; the head has their sizes
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SIZES = struct.Struct("<IQ")
Piece = bytes | bytearray | memoryview


def pack(head: Mapping[str, Any], pieces: Sequence[Piece] = ()) -> bytes:
    """One frame."""
    text = json.dumps(head).encode()
    return b"".join([_SIZES.pack(len(text), sum(len(one) for one in pieces)), text, *pieces])


class FrameReader:
    """Takes bytes as they arrive and gives whole frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: Piece) -> Iterator[tuple[dict[str, Any], memoryview]]:
        """The frames that are whole now; each owns its memory."""
        self._held += data
        while len(self._held) >= _SIZES.size:
            head_size, body_size = _SIZES.unpack_from(self._held)
            end = _SIZES.size + head_size + body_size
            if len(self._held) < end:
                return
            frame, self._held = self._held[:end], self._held[end:]
            yield json.loads(frame[_SIZES.size : _SIZES.size + head_size]), memoryview(frame)[-body_size or end :]


def read_frame(connection: socket.socket) -> tuple[dict[str, Any], memoryview] | None:
    """Wait for one frame; None when the other side has closed."""
    sizes = _read(connection, _SIZES.size)
    if sizes is None:
        return None
    head_size, body_size = _SIZES.unpack(sizes)
    content = _read(connection, head_size + body_size)
    if content is None:
        return None
    return json.loads(bytes(content[:head_size])), content[head_size:]


def split(body: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """The parts of a body."""
    parts, at = [], 0
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    return parts


def _read(connection: socket.socket, size: int) -> memoryview | None:
    content = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = connection.recv_into(content[at:])
        if not count:
            return None
        at += count
    return content
