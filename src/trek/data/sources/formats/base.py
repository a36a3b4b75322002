"""FileFormat: from the bytes of one file to record batches, a bounded number of bytes at a time.

Knows nothing of where files are or of other files; see `trek.data.sources.files`. One file per format beside this one.

Contracts: a format holds no state; `read` gives the rows in order, in batches with the same columns, and keeps only a
bounded part of the file in memory where the format allows; it raises DataUnavailable, or an Arrow or gzip error, for a
file that is damaged.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from trek.errors import InputError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Asked:
    """What of a file is wanted."""

    columns: Sequence[str] | None = None
    """These columns alone, unless None; a format that must read all of them may give all of them."""
    options: TextOptions = field(default_factory=lambda: TextOptions())
    """How to read a text format."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Types of columns of text formats, where the first block would suggest another."""
        return self.options.types


@dataclass(frozen=True)
class TextOptions:
    """How text files are written, where they are not as their format is by default."""

    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    header: bool | Sequence[str] = True
    """Whether the first line names the columns; or the names, for files without such a line."""
    delimiter: str | None = None
    quote: str | bool = True
    """The character around values that hold delimiters; False where there is none."""
    encoding: str = "utf-8"

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        default = TextOptions()
        return {
            f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != getattr(default, f.name)
        }

    def identity(self) -> dict[str, str]:
        """What distinguishes these options from others."""
        return {name: str(dict(value) if isinstance(value, Mapping) else value) for name, value in self.given().items()}

    def require_for(self, found: FileFormat, suffix: str) -> None:
        """Refuse options that files of this format do not have, and values that no file has."""
        for name in self.given():
            if name not in found.options:
                known = (
                    f"it takes {', '.join(sorted(found.options))}" if found.options else "such files know their types"
                )
                raise InputError(f"{name}= is for text files, such as .csv; .{suffix} files do not take it: {known}.")
        if isinstance(self.header, str):
            raise InputError(f"header must be True, False or a list of column names, got {self.header!r}.")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InputError(f"delimiter must be one character, got {self.delimiter!r}.")
        if isinstance(self.quote, str) and len(self.quote) != 1:
            raise InputError(f"quote must be one character, or False for none, got {self.quote!r}.")
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            raise InputError(
                f"encoding {self.encoding!r} is not known. Use one such as 'utf-8' or 'latin-1'."
            ) from error


class FileFormat(ABC):
    """One format of files, chosen by their suffix."""

    is_text = False
    """Whether columns have no types but those that their values look like, so that types may be given."""

    options: frozenset[str] = frozenset()
    """The names of the `TextOptions` that it reads by."""

    is_scanned = False
    """Whether Polars may read such files too, so that `scan` is defined."""

    is_counted = False
    """Whether a file says how many rows it has without being read, so that `count_rows` is defined."""

    is_described = False
    """Whether a file says which columns it has without its rows being read, so that `columns` is defined."""

    @abstractmethod
    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in order; a file without rows gives one batch without rows if it names its columns."""

    def scan(self, paths: Sequence[str], *, schema: pa.Schema) -> pl.LazyFrame | None:
        """Files of this machine as a scan of Polars with the columns of `schema`, if it reads them alike."""
        return None

    def columns(self, content: BinaryIO, *, url: str) -> pa.RecordBatch | None:
        """A batch without rows, with the columns that `read` gives; None of a file that has no rows."""
        raise NotImplementedError

    def filled(self, content: BinaryIO, names: frozenset[str]) -> frozenset[str]:
        """Those of the columns `names` that have no missing values, as far as the file says; for `is_described`."""
        return frozenset()

    def count_rows(self, content: BinaryIO, *, url: str) -> int:
        """How many rows there are."""
        raise NotImplementedError
