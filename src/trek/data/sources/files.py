"""Files and folders, here or behind any fsspec URL: Parquet, CSV, TSV, JSON lines, Arrow, NumPy and idx.

Each file is a partition, read batch by batch where the format allows, so that a file may be larger than memory.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import fsspec
import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.plan import Source, Stream
from trek.data.sources.memory import BATCH_ROWS, table_from
from trek.data.steps import conform
from trek.errors import DataUnavailable, InputError


@dataclass(frozen=True)
class FileInfo:
    """A file as it was found."""

    url: str
    size_bytes: int
    changed: str
    """Whatever the file system says of when it was changed."""


class FileSource(Source):
    """Files of one format, in the order of their names."""

    def __init__(self, files: list[FileInfo], *, reader: Reader) -> None:
        self.files = files
        self.reader = reader
        self._schema: pa.Schema | None = None

    @property
    def num_partitions(self) -> int:
        """One for each file."""
        return len(self.files)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the first file that has rows."""
        if self._schema is None:
            for file in self.files:
                first = next(self._read_file(file), None)
                if first is not None:
                    self._schema = first.schema
                    break
        return self._schema

    def describe(self) -> str:
        """One line for `explain`."""
        names = self.files[0].url if len(self.files) == 1 else f"{len(self.files)} files, {self.files[0].url} and on"
        return f"read {names}"

    def identity(self) -> Any:
        """Names, sizes and times of change."""
        return [(file.url, file.size_bytes, file.changed) for file in self.files]

    def read(self, index: int) -> Stream:
        """The rows of one file, held to the columns of the first."""
        file, schema = self.files[index], self.schema
        start = 0
        for batch in self._read_file(file):
            assert schema is not None
            yield conform(batch, schema, where=f"{file.url}, rows {start} to {start + batch.num_rows - 1}")
            start += batch.num_rows

    def _read_file(self, file: FileInfo) -> Iterator[pa.RecordBatch]:
        try:
            with fsspec.open(file.url, "rb", compression="infer") as content:
                yield from self.reader(content, file.url)
        except (pa.ArrowInvalid, EOFError, UnicodeDecodeError) as error:
            raise DataUnavailable(f"{file.url} cannot be read: {error}.") from error
        except FileNotFoundError as error:
            raise DataUnavailable(f"{file.url} is gone; it was there when the Table was made.") from error


Reader = Callable[[BinaryIO, str], Iterator[pa.RecordBatch]]


def open_files(url: str) -> FileSource:
    """The file at `url`, or all files of one known format in the folder there."""
    system, root = fsspec.core.url_to_fs(url)
    if not system.exists(root):
        raise InputError(f"{url!r} does not exist: neither a data set, nor a file or folder.")
    paths = [root] if system.isfile(root) else [p for p in sorted(system.find(root)) if _is_visible(p, root)]
    suffixes = {suffix_of(path) for path in paths}
    if len(suffixes) != 1 or not suffixes <= _READERS.keys():
        raise InputError(
            f"{url!r} holds {', '.join(sorted(s or 'files without suffix' for s in suffixes)) or 'no files'}; "
            f"a source is one or more files of one of these kinds: {', '.join(sorted(_READERS))}."
        )
    files = [_info(system, path) for path in paths]
    return FileSource(files, reader=_READERS[suffixes.pop()])


def suffix_of(path: str) -> str:
    """The suffix that tells the format, without one for compression."""
    name = posixpath.basename(path)
    for packing in (".gz", ".bz2", ".xz", ".zst"):
        name = name.removesuffix(packing)
    if "-idx" in name or name.endswith(("-ubyte", ".idx")):
        return ".idx"
    return posixpath.splitext(name)[1].lower()


def read_parquet(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """A Parquet file, row group after row group."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(content, pre_buffer=False).iter_batches(batch_size=BATCH_ROWS):
        yield tensors.unpack(batch)


def read_csv(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """Comma-separated values with a header; types are those of the first block."""
    yield from _read_separated(content, ",")


def read_tsv(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """TAB-separated values with a header, nothing quoted."""
    yield from _read_separated(content, "\t")


def read_json_lines(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """One JSON object a line."""
    from pyarrow import json

    yield from json.read_json(content).to_batches(max_chunksize=BATCH_ROWS)


def read_arrow(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """An Arrow IPC file, or stream."""
    try:
        reader = pa.ipc.open_file(content)
    except pa.ArrowInvalid:
        content.seek(0)
        yield from pa.ipc.open_stream(content)
        return
    yield from (reader.get_batch(index) for index in range(reader.num_record_batches))


def read_numpy(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """An .npy array (column `value`) or an .npz archive (its names)."""
    loaded = np.load(content, allow_pickle=False)
    columns = {"value": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    yield from table_from(columns).to_batches(max_chunksize=BATCH_ROWS)


def read_idx_file(content: BinaryIO, url: str) -> Iterator[pa.RecordBatch]:
    """An idx file (column `value`)."""
    from trek.data.sources.idx import parse_idx

    yield from table_from({"value": parse_idx(content.read(), name=url)}).to_batches(max_chunksize=BATCH_ROWS)


_READERS: dict[str, Reader] = {
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


def _read_separated(content: BinaryIO, delimiter: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False)
    yield from csv.open_csv(content, parse_options=parse)


def _is_visible(path: str, root: str) -> bool:
    relative = posixpath.relpath(path, root)
    return not any(part.startswith((".", "_")) for part in relative.split("/"))


def _info(system: Any, path: str) -> FileInfo:
    found = system.info(path)
    changed = next((str(found[key]) for key in ("mtime", "LastModified", "last_modified", "ETag") if key in found), "")
    return FileInfo(system.unstrip_protocol(path), int(found["size"] or 0), changed)
