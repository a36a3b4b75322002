"""How many bytes an Arrow stream unpacks to, read from its metadata before anything is unpacked.

A compressed buffer begins with its uncompressed length, and a buffer may be named several times, so that a small body
can stand for more than any memory holds. The tables of Flatbuffers are read as Arrow's format (Message.fbs) has them.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Numbers of the fields: of a Message, a DictionaryBatch and, twice, a RecordBatch."""
_LENGTH = struct.Struct("<q")


def unpacked_bytes(messages: Any) -> int:
    """The sum over the buffers of all batches. ValueError or struct.error for metadata that is damaged."""
    return sum(_bytes_of(message) for message in messages if message.type in ("dictionary", "record batch"))


def _bytes_of(message: Any) -> int:
    metadata, body = memoryview(message.metadata), memoryview(message.body or b"")
    batch = _inner(metadata, _target(metadata, 0), _HEADER)
    if message.type == "dictionary":
        batch = _inner(metadata, batch, _DATA)
    vector = _inner(metadata, batch, _BUFFERS)
    (count,) = struct.unpack_from("<I", metadata, vector)
    buffers = np.frombuffer(metadata, "<i8", count=2 * count, offset=vector + 4).reshape(count, 2).tolist()
    if _field(metadata, batch, _COMPRESSION) is None:
        return sum(length for _, length in buffers)
    return sum(_uncompressed(body, offset, length) for offset, length in buffers)


def _uncompressed(body: memoryview, offset: int, length: int) -> int:
    """Of a compressed buffer; -1 before it says that it is not compressed."""
    if length < _LENGTH.size or offset < 0:
        return 0
    found: int = _LENGTH.unpack_from(body, offset)[0]
    return length if found == -1 else max(found, 0)


def _inner(metadata: memoryview, table: int, number: int) -> int:
    """Where the table or vector lies that is field `number` of the one at `table`."""
    position = _field(metadata, table, number)
    if position is None:
        raise ValueError(f"field {number} of a batch is missing")
    return _target(metadata, position)


def _target(metadata: memoryview, position: int) -> int:
    """What the offset at `position` leads to."""
    return position + int(struct.unpack_from("<I", metadata, position)[0])


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Where field `number` of a table is; None if it is left out."""
    slots = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, slots)
    slot = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", metadata, slots + slot) if slot < size else (0,)
    return table + offset if offset else None
