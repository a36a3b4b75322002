"""File formats: from the bytes of one file to record batches, a bounded number of bytes at a time.

Knows nothing of where files lie or of other files; see `trek.data.sources.files`.
"""

from __future__ import annotations

import io
import math
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.sources.memory import BATCH_ROWS, table_from
from trek.errors import DataUnavailable

_BLOCK_BYTES = 1 << 20  # of JSON lines that are parsed at once
_CSV_BLOCK_BYTES = 1 << 19  # Arrow reads 32 of them ahead


@dataclass(frozen=True)
class Asked:
    """What of a file is wanted."""

    columns: Sequence[str] | None = None
    """These columns alone, unless None; a format that must read all of them may give all of them."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Types of columns of text formats, where the first block would tell wrongly."""


Reader = Callable[[BinaryIO, str, Asked], Iterator[pa.RecordBatch]]
"""`reader(content, url, asked)`: the rows of a file, in order."""


def suffix_of(path: str) -> str:
    """The suffix that tells the format, without one for compression."""
    name = posixpath.basename(path)
    for packing in (".gz", ".bz2", ".xz", ".zst"):
        name = name.removesuffix(packing)
    if "-idx" in name or name.endswith(("-ubyte", ".idx")):
        return ".idx"
    return posixpath.splitext(name)[1].lower()


def read_parquet(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    """A Parquet file, row group after row group."""
    import pyarrow.parquet as pq

    columns = None if asked.columns is None else list(asked.columns)
    with pq.ParquetFile(content, pre_buffer=False) as file:
        if not file.metadata.num_rows:  # no batch would come, and the columns would not be known
            yield tensors.unpack(_no_rows(file.schema_arrow))
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
            yield tensors.unpack(batch)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def read_csv(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    """Comma-separated values with a header; types are those of the first block, unless they are told."""
    yield from _read_separated(content, ",", asked)


def read_tsv(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    """TAB-separated values with a header, nothing quoted."""
    yield from _read_separated(content, "\t", asked)


def read_json_lines(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    """One JSON object a line; columns and types are those of the first block, unless they are told."""
    from pyarrow import json

    schema, columns, line = pa.schema(list(asked.types.items())), list[str](), 1
    unexpected = "infer"
    for block in _blocks_of_lines(content):
        parse = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
        reading = json.ReadOptions(use_threads=False, block_size=len(block))
        try:
            rows = json.read_json(io.BytesIO(block), read_options=reading, parse_options=parse)
        except pa.ArrowInvalid as error:
            raise DataUnavailable(f"{url}, line {line} and on: {error}. {TYPES_REMEDY}") from error
        if not columns:
            columns = list(asked.columns or rows.column_names)
            schema = pa.schema([rows.schema.field(name) for name in columns if _has_type(rows.schema.field(name))])
            unexpected = "ignore" if asked.columns else "infer"
        is_complete = asked.columns or set(rows.column_names) == set(columns)
        yield from (rows.select(columns) if is_complete else rows).combine_chunks().to_batches()
        line += block.count(b"\n")


def read_arrow(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    """An Arrow IPC file, or stream."""
    try:
        reader = pa.ipc.open_file(content)
    except pa.ArrowInvalid:
        content.seek(0)
        yield from pa.ipc.open_stream(content)
        return
    yield from (reader.get_batch(index) for index in range(reader.num_record_batches))


def read_numpy(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
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


def read_idx_file(content: BinaryIO, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    """An idx file (column `value`), run by run."""
    from trek.data.sources.idx import parse_idx_header

    dtype, shape = parse_idx_header(content, name=url)
    yield from read_array(content, dtype, shape, url=url)
    if content.read(1):
        raise DataUnavailable(f"{url} promises shape {shape}, but more follows. Fetch it again.")


def read_array(content: BinaryIO, dtype: np.dtype[Any], shape: Sequence[int], *, url: str) -> Iterator[pa.RecordBatch]:
    """The rows of an array that is spelt byte by byte from here on."""
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    for start in range(0, shape[0], BATCH_ROWS):
        count = min(BATCH_ROWS, shape[0] - start)
        found = content.read(count * row_bytes)
        if len(found) != count * row_bytes:
            row = start + len(found) // row_bytes
            raise DataUnavailable(f"{url} promises shape {tuple(shape)}, but ends in row {row}. Fetch it again.")
        rows = np.frombuffer(found, dtype).reshape(count, *shape[1:])
        yield from table_from({"value": rows.astype(dtype.newbyteorder("="), copy=False)}).to_batches()


READERS: dict[str, Reader] = {
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".npy": read_numpy,
    ".npz": read_numpy,
    ".idx": read_idx_file,
}

TEXTS = {".csv", ".tsv", ".jsonl", ".ndjson", ".json"}
"""Formats whose columns have no types but those their values look like."""
TYPES_REMEDY = "If a column is of another type than its first rows look like, say so: open(…, types={'x': 'float64'})."


def count_parquet(content: BinaryIO, url: str) -> int:
    """Rows, as the file's footer says."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(content).num_rows)


def count_idx(content: BinaryIO, url: str) -> int:
    """Rows, as the file's header says."""
    from trek.data.sources.idx import parse_idx_header

    return parse_idx_header(content, name=url)[1][0]


COUNTERS: dict[str, Callable[[BinaryIO, str], int]] = {".parquet": count_parquet, ".idx": count_idx}
"""Formats that say how many rows there are without being read."""


def _has_type(column: pa.Field) -> bool:
    return not pa.types.is_null(column.type)


def _read_separated(content: BinaryIO, delimiter: str, asked: Asked) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False)
    convert = csv.ConvertOptions(column_types=dict(asked.types), include_columns=list(asked.columns or ()))
    reading = csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False)
    yield from csv.open_csv(content, read_options=reading, parse_options=parse, convert_options=convert)


def _blocks_of_lines(content: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about a block of them at a time; a longer line is a block of its own."""
    rest: list[bytes] = []
    while block := content.read(_BLOCK_BYTES):
        whole, newline, after = block.rpartition(b"\n")
        if not newline:
            rest.append(block)
            continue
        yield b"".join([*rest, whole, newline])
        rest = [after]
    if any(part.strip() for part in rest):
        yield b"".join(rest)


def _npy_header(content: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    from numpy.lib import format as npy

    version = npy.read_magic(content)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(content)
    return shape, is_fortran, dtype
