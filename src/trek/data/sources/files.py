"""Files and folders, on this machine or behind any URL that fsspec opens, in the formats of `formats`.

Each file is a partition, read batch by batch where the format allows, so that a file may be larger than memory.
"""

from __future__ import annotations

import copy
import gzip
import posixpath
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import fsspec
import pyarrow as pa

from trek.data.column_types import kept_batch
from trek.data.plans.conforming import conform
from trek.data.plans.plan import PlanNode, Source, Stream
from trek.data.sources.formats import FORMATS, PACKINGS, TYPES_REMEDY, Asked, FileFormat, format_of, suffix_of
from trek.data.sources.memory import require_distinct
from trek.errors import DataUnavailable, InputError
from trek.world.urls import is_remote, local_path

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering


@dataclass(frozen=True)
class FileInfo:
    """A file as it was found."""

    url: str
    size_bytes: int
    changed: str
    """The time of the last change, as the file system gives it."""


class FileSource(Source):
    """Files of one format, in the order of their names."""

    is_fixed = True

    def __init__(self, files: list[FileInfo], *, format: FileFormat, asked: Asked | None = None) -> None:  # noqa: A002
        self.files = files
        self.format = format
        self.asked = asked or Asked()
        self._schema: pa.Schema | None = None
        self._schema_of_none: pa.Schema | None = None
        self._num_rows: int | None = None

    @property
    def num_partitions(self) -> int:
        """One for each file."""
        return len(self.files)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the first file that has rows; of the first that names any, where none has."""
        if self._schema is None:
            for file in self.files:
                first = next(self._read_file(file), None)
                if first is None:
                    continue
                require_distinct(first.schema.names, where=file.url)
                if first.num_rows:
                    self._schema = first.schema
                    return self._schema
                self._schema_of_none = self._schema_of_none or first.schema
        return self._schema or self._schema_of_none

    @property
    def num_rows(self) -> int | None:
        """The sum over all files, if the format says so without being read."""
        if self._num_rows is None and self.format.is_counted:
            self._num_rows = sum(self._count(file) for file in self.files)
        return self._num_rows

    def describe(self) -> str:
        """One line for `explain`."""
        names = self.files[0].url if len(self.files) == 1 else f"{len(self.files)} files, {self.files[0].url} and on"
        return f"read {names}"

    def identity(self) -> Any:
        """Names, sizes and times of change, and the types that were given."""
        files = [(file.url, file.size_bytes, file.changed) for file in self.files]
        types = {name: str(kind) for name, kind in self.asked.types.items()}
        return (files, types) if types else files

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
            yield conform(batch, schema, where=f"{file.url}, rows {start} to {start + batch.num_rows - 1}")
            start += batch.num_rows

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """A scan, where Polars reads the files as Arrow does."""
        schema = self.schema
        if schema is None or not self._is_scanned():
            return None
        return self.format.scan([str(local_path(file.url)) for file in self.files], schema=schema)

    def single(self, index: int) -> PlanNode | None:
        """One file."""
        schema = self.schema
        if schema is None or not self._is_scanned():
            return None
        one = copy.copy(self)
        one.files, one._schema, one._num_rows = [self.files[index]], schema, None
        return one

    def _is_scanned(self) -> bool:
        return self.format.is_scanned and all(_is_plain_local(file.url) for file in self.files)

    def _read_file(self, file: FileInfo) -> Iterator[pa.RecordBatch]:
        with self._opened(file) as content:
            for batch in self.format.read(content, url=file.url, asked=self.asked):
                yield self._chosen(kept_batch(batch), file)

    def _opened(self, file: FileInfo) -> AbstractContextManager[BinaryIO]:
        return _opened(file, is_text=self.format.is_text)

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


def _is_plain_local(url: str) -> bool:
    return not is_remote(url) and not url.endswith(PACKINGS)


@contextmanager
def _opened(file: FileInfo, *, is_text: bool) -> Iterator[BinaryIO]:
    """The content, unpacked where it is compressed; damage becomes an error that names the file."""
    try:
        with fsspec.open(file.url, "rb", compression="infer") as content:
            yield content
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
    except FileNotFoundError as error:
        raise DataUnavailable(f"{file.url} no longer exists; it did when the Table was made.") from error


def open_files(url: str, *, types: Mapping[str, pa.DataType] | None = None) -> FileSource:
    """The file at `url`, or all files of one known format in the folder there."""
    system, root = file_system(url)
    if not is_there(system, root, url=url):
        raise InputError(f"{url!r} does not exist, neither as a data set nor as a file or folder.")
    paths = [root] if system.isfile(root) else [p for p in sorted(system.find(root)) if _is_visible(p, root)]
    suffixes = {suffix_of(path) for path in paths}
    if len(suffixes) != 1 or not all(suffix in FORMATS for suffix in suffixes):
        found = ", ".join(sorted(f".{suffix}" if suffix else "files without suffix" for suffix in suffixes))
        raise InputError(
            f"{url!r} holds {found or 'no files'}; expected one or more files of one of these formats: "
            f"{', '.join(f'.{name}' for name in FORMATS.names())}."
        )
    (suffix,) = suffixes
    found_format = format_of(suffix)
    if types and not found_format.is_text:
        raise InputError(f"types= is for text files, such as .csv; .{suffix} files know their types.")
    return FileSource([_info(system, path) for path in paths], format=found_format, asked=Asked(types=types or {}))


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system that `url` is on, and the path there; an error that says what is missing for it."""
    scheme = url.partition("://")[0]
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = {"s3a": "s3", "gs": "gcs", "https": "http"}.get(scheme, scheme)
        known = f" (pip install 'trek[{extra}]')" if extra in ("s3", "gcs", "http") else ""
        raise InputError(f"{url!r} needs a package that is not installed{known}: {error}.") from error
    except ValueError as error:
        known = ", ".join(sorted({"file", "memory", "http", "https", "s3", "gs", "az", "hf"}))
        raise InputError(f"{url!r}: {error}. Known schemes are {known} and others of fsspec.") from error
    return system, str(path)


def _is_visible(path: str, root: str) -> bool:
    relative = posixpath.relpath(path, root)
    return not any(part.startswith((".", "_")) for part in relative.split("/"))


def _info(system: Any, path: str) -> FileInfo:
    found = system.info(path)
    changed = next((str(found[key]) for key in ("mtime", "LastModified", "last_modified", "ETag") if key in found), "")
    return FileInfo(system.unstrip_protocol(path), int(found["size"] or 0), changed)


def is_there(system: Any, path: str, *, url: str) -> bool:
    """Whether `path` of `url`'s file system exists: the first thing that is asked of it."""
    try:
        return bool(system.exists(path))
    except Exception as error:  # every store has errors of its own kind
        raise DataUnavailable(
            f"{url!r} cannot be opened: {str(error).rstrip('.')}. Check the URL and the credentials for its store."
        ) from error
