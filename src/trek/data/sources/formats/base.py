"""FileFormat: from the bytes of one file to record batches, a bounded number of bytes at a time.

Knows nothing of where files are or of other files; see `trek.data.sources.files`. One file per format beside this one.

Contracts: a format holds no state; `read` gives the rows in order, in batches with the same columns, and keeps only a
bounded part of the file in memory where the format allows; it raises DataUnavailable, or an Arrow or gzip error, for a
file that is damaged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Asked:
    """What of a file is wanted."""

    columns: Sequence[str] | None = None
    """These columns alone, unless None; a format that must read all of them may give all of them."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Types of columns of text formats, where the first block would suggest another."""


class FileFormat(ABC):
    """One format of files, chosen by their suffix."""

    is_text = False
    """Whether columns have no types but those that their values look like, so that `Asked.types` may be given."""

    is_scanned = False
    """Whether Polars may read such files too, so that `scan` is defined."""

    is_counted = False
    """Whether a file says how many rows it has without being read, so that `count_rows` is defined."""

    @abstractmethod
    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in order; a file without rows gives one batch without rows if it names its columns."""

    def scan(self, paths: Sequence[str], *, schema: pa.Schema) -> pl.LazyFrame | None:
        """Files of this machine as a scan of Polars with the columns of `schema`, if it reads them alike."""
        return None

    def count_rows(self, content: BinaryIO, *, url: str) -> int:
        """How many rows there are."""
        raise NotImplementedError
