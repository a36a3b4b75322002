"""Text files of values between separators, with a header line unless they have none."""

from __future__ import annotations

import copy
import io
import math
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, ClassVar, Literal

import pyarrow as pa

from trek.data.sources.formats.base import Asked, FileFormat, TextOptions
from trek.data.sources.formats.whole_numbers import exact_type, may_be_whole

_WHOLE = re.compile(r"[+-]?[0-9]{1,400}")
_BLOCK_BYTES = (1 << 19, 1 << 22, 1 << 25, 1 << 28)  # Arrow reads 32 of them ahead
_TOO_LONG = "straddling object"


class CsvFormat(FileFormat):
    """Comma-separated values; a value with commas is quoted."""

    is_text = True
    options = frozenset({"types", "header", "delimiter", "quote", "encoding"})
    _delimiter: ClassVar[str] = ","
    _quote: ClassVar[str | Literal[False]] = '"'
    _block_bytes = _BLOCK_BYTES[0]

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """Block after block; types are those of the first, unless they are given."""
        if content.seekable():
            yield from self._read_again(content, url=url, asked=asked)
            return
        head = content.read(_BLOCK_BYTES[0])
        types = self._better_types(io.BytesIO(head[: head.rfind(b"\n") + 1] or head), asked, url=url)
        yield from self._batches(io.BufferedReader(_Rejoined(head, content)), asked, types)

    def _read_again(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """From the beginning and in larger blocks, where one cannot hold a row."""
        types: dict[str, pa.DataType] | None = None
        done = 0
        for block_bytes in _BLOCK_BYTES:
            sized = copy.copy(self)
            sized._block_bytes = block_bytes
            try:
                content.seek(0)
                types = sized._better_types(content, asked, url=url) if types is None else types
                content.seek(0)
                begin = 0
                with _Turn(content) as turn:
                    for batch in sized._batches(turn, asked, types):
                        types = types if done else _known_types(batch.schema)
                        rest = batch.slice(max(0, done - begin))
                        begin += batch.num_rows
                        done = max(done, begin)
                        if rest.num_rows or not done:
                            yield rest
                return
            except pa.ArrowInvalid as error:
                if _TOO_LONG not in str(error) or block_bytes == _BLOCK_BYTES[-1]:
                    raise

    def _batches(self, content: Any, asked: Asked, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        reader = self._open(content, asked.options, {**types, **asked.types}, columns=list(asked.columns or ()))
        first = next(iter(reader), None)
        yield first if first is not None else pa.RecordBatch.from_pylist([], reader.schema)  # a header alone
        yield from reader

    def _open(self, content: Any, options: TextOptions, types: Mapping[str, pa.DataType], *, columns: list[str]) -> Any:
        from pyarrow import csv

        quote: Any = self._quote if options.quote is True else options.quote
        parse = csv.ParseOptions(
            delimiter=options.delimiter or self._delimiter, quote_char=quote, newlines_in_values=bool(quote)
        )
        convert = csv.ConvertOptions(column_types=dict(types), include_columns=columns)
        reading = csv.ReadOptions(
            block_size=self._block_bytes,
            use_threads=False,
            encoding=options.encoding,
            autogenerate_column_names=options.header is False,
            column_names=None if isinstance(options.header, bool) else list(options.header),
        )
        return csv.open_csv(content, read_options=reading, parse_options=parse, convert_options=convert)

    def _better_types(self, content: BinaryIO, asked: Asked, *, url: str) -> dict[str, pa.DataType]:
        """Types that Arrow does not see in the first block: integers above 2**63, and columns that are empty there."""
        names = list(asked.columns or ())
        with _Turn(content) as turn:
            first = next(iter(self._open(turn, asked.options, asked.types, columns=names)), None)
        found: dict[str, pa.DataType] = {}
        if first is None:
            return found
        for field, column in zip(first.schema, first.columns, strict=True):
            if field.name in asked.types:
                continue
            if pa.types.is_null(field.type) and first.num_rows:
                found[field.name] = self._first_type(content, asked.options, field.name)
            elif may_be_whole(column):
                found[field.name] = self._exact_type(content, asked.options, field, url=url)
        return found

    def _exact_type(self, content: BinaryIO, options: TextOptions, field: pa.Field, *, url: str) -> pa.DataType:
        """The type of a column that looks like large floats, and may hold large whole numbers."""
        content.seek(0)
        with _Turn(content) as turn:
            first = next(iter(self._open(turn, options, {field.name: pa.string()}, columns=[field.name])))
        texts = [text.strip() for text in first.column(0).drop_null().to_pylist() if text.strip()]
        numbers = [int(text) if _WHOLE.fullmatch(text) else math.nan for text in texts]
        return exact_type(field.type, numbers, name=field.name, where=url)

    def _first_type(self, content: BinaryIO, options: TextOptions, name: str) -> pa.DataType:
        """The type that the first values of a column look like, wherever they are in the file."""
        from pyarrow import csv

        content.seek(0)
        with _Turn(content) as turn:
            for batch in self._open(turn, options, {name: pa.string()}, columns=[name]):
                values = batch.column(0).drop_null().filter(pa.compute.not_equal(batch.column(0).drop_null(), ""))
                if len(values):
                    sample = io.BytesIO()
                    csv.write_csv(pa.table({"x": values}), sample)
                    kind: pa.DataType = csv.read_csv(io.BytesIO(sample.getvalue())).schema.field(0).type
                    return kind if not pa.types.is_null(kind) else pa.string()
        return pa.null()


def _known_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Types to read the same columns with, where larger blocks would suggest others."""
    return {field.name: field.type for field in schema if not pa.types.is_null(field.type)}


class _Turn(io.RawIOBase):
    """A file while one reader has it. Afterwards that reader finds the file at its end.

    Arrow reads ahead in a thread of its own, and goes on with that for a reader that nobody asks any more. What it took
    then would be missing to the next reader of the same file, without an error where the pieces happen to fit.
    """

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._reading = threading.Lock()
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._reading:
            found = b"" if self._is_over else self._content.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def __exit__(self, *_: object) -> None:
        with self._reading:
            self._is_over = True


class _Rejoined(io.RawIOBase):
    """What was read from a stream, and then the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = io.BytesIO(head)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class TsvFormat(CsvFormat):
    """TAB-separated values, without quoting."""

    _delimiter = "\t"
    _quote = False
