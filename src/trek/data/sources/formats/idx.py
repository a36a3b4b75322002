"""The idx format of the MNIST family: a four-byte mark, big-endian sizes, then the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from trek.data.sources.formats.arrays import read_array
from trek.data.sources.formats.base import Asked, FileFormat
from trek.errors import DataUnavailable

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxFormat(FileFormat):
    """An array as the column `value`, run by run."""

    is_counted = True

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """A bounded number of rows at a time."""
        dtype, shape = _parse_header(content, name=url)
        yield from read_array(content, dtype, shape, url=url)
        if content.read(1):
            raise DataUnavailable(f"{url} has more data than its header says (shape {shape}). Fetch it again.")

    def count_rows(self, content: BinaryIO, *, url: str) -> int:
        """Rows, as the file's header says."""
        return _parse_header(content, name=url)[1][0]


def _parse_header(content: BinaryIO, *, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of the numbers that follow; leaves `content` at the first of them."""
    mark = content.read(4)
    if len(mark) < 4 or mark[:2] != b"\0\0" or mark[2] not in _DTYPES:
        raise DataUnavailable(f"{name} is not an idx file: it begins with {mark.hex(' ')!r}.")
    sizes = content.read(4 * mark[3])
    if len(sizes) < 4 * mark[3] or not mark[3]:
        raise DataUnavailable(f"{name} is not an idx file: it ends within its header.")
    return np.dtype(_DTYPES[mark[2]]), tuple(int(size) for size in np.frombuffer(sizes, dtype=">u4"))
