"""Text files of values between separators, with a header line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, ClassVar, Literal

import pyarrow as pa

from trek.data.sources.formats.base import Asked, FileFormat

_BLOCK_BYTES = 1 << 19  # Arrow reads 32 of them ahead


class CsvFormat(FileFormat):
    """Comma-separated values; a value with commas is quoted."""

    is_text = True
    _delimiter: ClassVar[str] = ","
    _quote: ClassVar[str | Literal[False]] = '"'

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """Block after block; types are those of the first, unless they are given."""
        from pyarrow import csv

        parse = csv.ParseOptions(delimiter=self._delimiter, quote_char=self._quote)
        convert = csv.ConvertOptions(column_types=dict(asked.types), include_columns=list(asked.columns or ()))
        reading = csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
        yield from csv.open_csv(content, read_options=reading, parse_options=parse, convert_options=convert)


class TsvFormat(CsvFormat):
    """TAB-separated values, without quoting."""

    _delimiter = "\t"
    _quote = False
