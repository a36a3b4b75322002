"""The idx format of the MNIST family: a four-byte mark, big-endian sizes, then the numbers."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trek.errors import DataUnavailable

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file, gzip-compressed or not."""
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataUnavailable(f"{path} is a broken gzip file: {error}.") from error
    return parse_idx(content, name=str(path))


def parse_idx(content: bytes, *, name: str) -> np.ndarray:
    """The array that the bytes of an idx file spell."""
    dtype, shape = parse_idx_header(io.BytesIO(content), name=name)
    start = 4 + 4 * len(shape)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise DataUnavailable(f"{name} promises shape {shape}, {expected} bytes, but has {len(content)}.")
    array = np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def parse_idx_header(content: BinaryIO, *, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of the numbers that follow; `content` stands at the first of them afterwards."""
    mark = content.read(4)
    if len(mark) < 4 or mark[:2] != b"\0\0" or mark[2] not in _DTYPES:
        raise DataUnavailable(f"{name} is no idx file: it begins with {mark.hex(' ')!r}.")
    sizes = content.read(4 * mark[3])
    if len(sizes) < 4 * mark[3] or not mark[3]:
        raise DataUnavailable(f"{name} is no idx file: it ends within its header.")
    return np.dtype(_DTYPES[mark[2]]), tuple(int(size) for size in np.frombuffer(sizes, dtype=">u4"))
