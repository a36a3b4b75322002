"""The idx format of the MNIST family: a four-byte mark, big-endian sizes, then the numbers."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

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
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise DataUnavailable(f"{name} is no idx file: it begins with {content[:4].hex(' ')!r}.")
    dtype, num_dimensions = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * num_dimensions
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    expected = start + int(np.prod(shape)) * dtype.itemsize
    if len(content) != expected:
        raise DataUnavailable(f"{name} promises shape {shape}, {expected} bytes, but has {len(content)}.")
    array = np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)
