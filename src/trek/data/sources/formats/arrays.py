"""Arrays in files: .npy and .npz of NumPy, and the rows of an array that is stored byte by byte."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from trek.data.sources.formats.base import Asked, FileFormat
from trek.data.sources.memory import BATCH_ROWS, table_from
from trek.errors import DataUnavailable


class NumpyFormat(FileFormat):
    """An .npy array (column `value`), run by run; or an .npz archive (columns by its names), which is read whole."""

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """An .npy array (column `value`), run by run; or an .npz archive (its names), which is read whole."""
        start = content.read(6)
        content.seek(0)
        if start != b"\x93NUMPY":
            archive = np.load(content, allow_pickle=False)
            yield from table_from({name: archive[name] for name in archive.files}).to_batches(max_chunksize=BATCH_ROWS)
            return
        shape, is_fortran, dtype = _npy_header(content)
        if is_fortran or dtype.hasobject or not shape:
            content.seek(0)
            whole = np.load(content, allow_pickle=False)
            yield from table_from({"value": whole}).to_batches(max_chunksize=BATCH_ROWS)
            return
        yield from read_array(content, dtype, shape, url=url)


def read_array(content: BinaryIO, dtype: np.dtype[Any], shape: Sequence[int], *, url: str) -> Iterator[pa.RecordBatch]:
    """The rows of an array whose bytes follow in `content`, a bounded number at a time."""
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    for start in range(0, shape[0], BATCH_ROWS):
        count = min(BATCH_ROWS, shape[0] - start)
        found = content.read(count * row_bytes)
        if len(found) != count * row_bytes:
            row = start + len(found) // row_bytes
            raise DataUnavailable(f"{url} should have shape {tuple(shape)}, but ends in row {row}. Fetch it again.")
        rows = np.frombuffer(found, dtype).reshape(count, *shape[1:])
        yield from table_from({"value": rows.astype(dtype.newbyteorder("="), copy=False)}).to_batches()


def _npy_header(content: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    from numpy.lib import format as npy

    version = npy.read_magic(content)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(content)
    return shape, is_fortran, dtype
