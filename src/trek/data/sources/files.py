"""Files and folders, on this machine or behind any URL that fsspec opens, in the formats of `formats`.

Each file is a partition, read batch by batch where the format allows, so that a file may be larger than memory.
"""

from __future__ import annotations

import copy
import gzip
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import fsspec
import pyarrow as pa
from fsspec.compression import compr
from fsspec.utils import infer_compression

from trek.data.column_types import kept_batch
from trek.data.execution.polars_engine import load_polars
from trek.data.plans.conforming import conform, is_settled, merged_schema
from trek.data.plans.plan import PlanNode, Source, Stream
from trek.data.sources.formats import (
    FORMATS,
    PACKINGS,
    TYPES_REMEDY,
    Asked,
    FileFormat,
    TextOptions,
    format_of,
    suffix_of,
)
from trek.data.sources.formats.scanning import with_constants
from trek.data.sources.listing import FileInfo, list_files, partition_schema, partition_value, require_unchanged
from trek.data.sources.memory import require_distinct
from trek.data.sources.web import RetriedFile, is_web, retried
from trek.errors import DataUnavailable, InputError
from trek.system.urls import is_remote, local_path

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering


class FileSource(Source):
    """Files of one format, in the order of their names."""

    is_fixed = True

    def __init__(self, files: list[FileInfo], *, format: FileFormat, asked: Asked | None = None) -> None:  # noqa: A002
        self.files = files
        self.format = format
        self.asked = asked or Asked()
        self._partitions = partition_schema(files)
        self._schema: pa.Schema | None = None
        self._num_rows: int | None = None
        self._alike: set[FileInfo] = set()

    @property
    def num_partitions(self) -> int:
        """One for each file."""
        return len(self.files)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the first file that has rows; of the first that names any, where none has."""
        if self._schema is None:
            self._schema = self._found_schema()
            if self._schema is not None and self.asked.columns is None:
                self._require_typed(self._schema.names)
        return self._schema

    def _require_typed(self, names: Sequence[str]) -> None:
        """Refuse types for columns that no file has: they would have no effect."""
        for name in self.asked.types:
            if name not in names:
                raise InputError(
                    f"types= names the column {name!r}, which {self.files[0].url} does not have. "
                    f"There are: {', '.join(names)}."
                )

    def _found_schema(self) -> pa.Schema | None:
        """Types that the first rows leave open are taken from the first rows that have them."""
        found: pa.Schema | None = None
        of_none: pa.Schema | None = None
        for file in self.files:
            for number, (schema, has_rows) in enumerate(self._schemas(file)):
                if not number:
                    require_distinct(schema.names, where=file.url)
                if has_rows:
                    found = merged_schema(found or schema, schema)
                    if is_settled(found):
                        return found
                of_none = of_none or schema
        return found or of_none

    def _schemas(self, file: FileInfo) -> Iterator[tuple[pa.Schema, bool]]:
        """The columns of a file, as it tells them or as its batches have them, each with whether there are rows."""
        if self.format.is_described:
            with self._opened(file) as content:
                described = self.format.columns(content, url=file.url)
            if described is not None:
                yield self._finished(described, file).schema, True
                return
        for batch in self._read_file(file):
            yield batch.schema, batch.num_rows > 0

    @property
    def num_rows(self) -> int | None:
        """The sum over all files, if the format says so without being read."""
        if self._num_rows is None and self.format.is_counted:
            self._num_rows = sum(self._count(file) for file in self.files)
        return self._num_rows

    def filled(self, names: Iterable[str]) -> frozenset[str]:
        """What every file says of itself."""
        found = frozenset(names) if self.format.is_described and self._is_scanned() else frozenset()
        for file in self.files:
            if not found:
                break
            with self._opened(file) as content:
                found = self.format.filled(content, found)
        return found

    def require_unchanged(self) -> None:
        """Ask the file system of every file."""
        for file in self.files:
            require_unchanged(file)

    def describe(self) -> str:
        """One line for `explain`."""
        names = self.files[0].url if len(self.files) == 1 else f"{len(self.files)} files, {self.files[0].url} and on"
        return f"read {names}"

    def identity(self) -> Any:
        """Names, sizes and times of change, and the options that were given."""
        files = [(file.url, file.size_bytes, file.changed) for file in self.files]
        options = self.asked.options.identity()
        return (files, options) if options else files

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """Columns left out are not decoded, where the format allows."""
        narrow = copy.copy(self)
        narrow.asked = replace(self.asked, columns=list(names))
        narrow._schema = None if self._schema is None else pa.schema([self._schema.field(name) for name in names])
        return narrow

    def read(self, index: int) -> Stream:
        """The rows of one file, which must have the columns of the first."""
        file, schema = self.files[index], self.schema
        start = 0
        for batch in self._read_file(file):
            assert schema is not None
            if not batch.num_rows:
                continue
            _require_no_more(batch.schema.names, schema.names, file)
            if batch.num_columns == len(schema):  # columns are known by name, as they are in a scan
                batch = batch.select(sorted(batch.schema.names, key=schema.names.index))
            yield conform(batch, schema, where=f"{file.url}, rows {start} to {start + batch.num_rows - 1}")
            start += batch.num_rows

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """A scan, where Polars reads the files as Arrow does."""
        schema = self.schema
        if schema is None or not self._is_scanned():
            return None
        return self._scan(schema)

    def single(self, index: int) -> PlanNode | None:
        """One file."""
        schema = self.schema
        if schema is None or not self._is_scanned():
            return None
        one = copy.copy(self)
        one.files, one._schema, one._num_rows = [self.files[index]], schema, None
        return one

    def _scan(self, schema: pa.Schema) -> pl.LazyFrame | None:
        """One scan of all files; files of hive partitions are scanned one by one, and get their values."""
        self._require_alike(schema)
        stored = pa.schema([field for field in schema if field.name not in self._partitions.names])
        if len(stored) == len(schema):
            return self.format.scan([str(local_path(file.url)) for file in self.files], schema=schema)
        frames = []
        for file in self.files:
            frame = self.format.scan([str(local_path(file.url))], schema=stored) if len(stored) else None
            if frame is None:
                return None
            frames.append(with_constants(frame, schema, self._constants(file)))
        return load_polars().concat(frames, how="vertical")  # type: ignore[no-any-return]

    def _require_alike(self, schema: pa.Schema) -> None:
        """Refuse files with more columns than the first, which a scan would leave out; unless some were chosen."""
        for file in self.files if self.asked.columns is None and self.format.is_described else ():
            if file not in self._alike:
                described = next(self._schemas(file), None)
                _require_no_more([] if described is None else described[0].names, schema.names, file)
                self._alike.add(file)

    def _constants(self, file: FileInfo) -> dict[str, Any]:
        return {field.name: partition_value(file, field) for field in self._partitions}

    def _is_scanned(self) -> bool:
        return self.format.is_scanned and all(_is_plain_local(file.url) for file in self.files)

    def _read_file(self, file: FileInfo) -> Iterator[pa.RecordBatch]:
        asked = self.asked
        if asked.columns is not None:
            stored = [name for name in asked.columns if name not in self._partitions.names]
            asked = replace(asked, columns=stored or None)
        with self._opened(file) as content:
            for batch in self.format.read(content, url=file.url, asked=asked):
                yield self._finished(batch, file)

    def _finished(self, batch: pa.RecordBatch, file: FileInfo) -> pa.RecordBatch:
        """What was read of a file, with the types that Tables hold, the columns of folders, and those asked for."""
        return self._chosen(self._with_partition(kept_batch(batch), file), file)

    def _with_partition(self, batch: pa.RecordBatch, file: FileInfo) -> pa.RecordBatch:
        """The columns that folders give, after those of the file; a column that the file has itself is its own."""
        for field in self._partitions:
            if field.name not in batch.schema.names:
                value = pa.scalar(partition_value(file, field), field.type)
                batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
        return batch

    @contextmanager
    def _opened(self, file: FileInfo) -> Iterator[BinaryIO]:
        """The content; whatever was read of it, and whatever went wrong, counts only if the file has not changed."""
        try:
            with _opened(file, is_text=self.format.is_text) as content:
                yield content
        except Exception:
            require_unchanged(file)
            raise
        require_unchanged(file)

    def _chosen(self, batch: pa.RecordBatch, file: FileInfo) -> pa.RecordBatch:
        if self.asked.columns is None:
            return batch
        missing = [name for name in self.asked.columns if name not in batch.schema.names]
        if missing:
            raise InputError(f"{file.url} has no column {missing[0]!r}, which the files before it have.")
        return batch.select(list(self.asked.columns))

    def _count(self, file: FileInfo) -> int:
        with self._opened(file) as content:
            return self.format.count_rows(content, url=file.url)


def _require_no_more(names: Sequence[str], wanted: Sequence[str], file: FileInfo) -> None:
    more = [name for name in names if name not in wanted]
    if more:
        raise InputError(
            f"{file.url} has a column {more[0]!r}, which the files before it do not have. Open files with other "
            "columns as another Table, and select() what is wanted of both."
        )


def _is_plain_local(url: str) -> bool:
    return not is_remote(url) and not url.endswith(PACKINGS)


@contextmanager
def _opened(file: FileInfo, *, is_text: bool) -> Iterator[BinaryIO]:
    """The content, unpacked where it is compressed; damage becomes an error that names the file."""
    try:
        with closing(_stored(file.url)) as stored:
            if file.url.endswith(".zst"):  # which fsspec unpacks only with a package that Arrow makes unnecessary
                yield pa.CompressedInputStream(pa.PythonFile(stored), "zstd")
            elif packing := infer_compression(file.url):
                with compr[packing](stored, mode="rb") as unpacked:
                    yield unpacked
            else:
                yield stored
    except (pa.ArrowInvalid, EOFError, UnicodeDecodeError, zlib.error, gzip.BadGzipFile) as error:
        remedy = f" {TYPES_REMEDY}" if is_text and "conversion error" in str(error) else ""
        raise DataUnavailable(f"{file.url} cannot be read: {str(error).rstrip('.')}.{remedy}") from error
    except ValueError as error:
        if "range requests" not in str(error):
            raise
        raise DataUnavailable(
            f"{file.url}: its web server does not support range requests. Download it first."
        ) from error
    except pa.ArrowKeyError as error:
        raise InputError(f"{file.url}: {error.args[0]}, which the files before it have.") from error
    except (OSError, zipfile.BadZipFile) as error:  # Arrow reports damaged pages as OSError
        what = " ".join(str(error).split()).rstrip(".")
        raise DataUnavailable(f"{file.url} cannot be read: {what}. Replace the file.") from error


def _stored(url: str) -> BinaryIO:
    """The bytes of a file as they are stored."""
    opened: BinaryIO = retried(fsspec.open(url, "rb", compression=None).open, url=url)
    return cast("BinaryIO", RetriedFile(opened, url=url)) if is_web(url) else opened


def open_files(urls: str | Sequence[str], *, options: TextOptions | None = None) -> FileSource:
    """The files of one known format that `urls` mean: a file, a folder, a pattern, or several of these in order."""
    listed = [urls] if isinstance(urls, str) else list(urls)
    if not listed:
        raise InputError("open() needs at least one file, got an empty list.")
    files = list(dict.fromkeys(file for url in listed for file in list_files(url)))
    suffixes = {suffix_of(file.url) for file in files}
    if len(suffixes) != 1 or not all(suffix in FORMATS for suffix in suffixes):
        found = ", ".join(sorted(f".{suffix}" if suffix else "files without suffix" for suffix in suffixes))
        raise InputError(
            f"{', '.join(map(repr, listed[:3]))} holds {found or 'no files'}; expected one or more files of one of "
            f"these formats: {', '.join(f'.{name}' for name in FORMATS.names())}."
        )
    (suffix,) = suffixes
    found_format = format_of(suffix)
    options = options or TextOptions()
    options.require_for(found_format, suffix)
    return FileSource(files, format=found_format, asked=Asked(options=options))
