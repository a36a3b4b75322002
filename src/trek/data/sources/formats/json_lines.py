"""JSON lines: one object a line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from trek.data.sources.formats.base import Asked, FileFormat
from trek.data.sources.formats.format_registry import TYPES_REMEDY
from trek.data.sources.formats.whole_numbers import exact_type, may_be_whole
from trek.errors import DataUnavailable

_BLOCK_BYTES = 1 << 20  # of lines that are parsed at once


class JsonLinesFormat(FileFormat):
    """Columns and types are those of the first block, unless they are given."""

    is_text = True
    options = frozenset({"types"})

    def read(self, content: BinaryIO, *, url: str, asked: Asked) -> Iterator[pa.RecordBatch]:
        """Block after block."""
        schema, columns, line = pa.schema(list(asked.types.items())), list[str](), 1
        unexpected = "infer"
        for block in _blocks_of_lines(content):
            rows = _exact_rows(block, schema, unexpected=unexpected, where=f"{url}, line {line} and on")
            if not columns:
                columns = list(asked.columns or rows.column_names)
                schema = pa.schema([rows.schema.field(name) for name in columns if _has_type(rows.schema.field(name))])
                unexpected = "ignore" if asked.columns else "infer"
            is_complete = asked.columns or set(rows.column_names) == set(columns)
            yield from (rows.select(columns) if is_complete else rows).combine_chunks().to_batches()
            line += block.count(b"\n")


def _exact_rows(block: bytes, schema: pa.Schema, *, unexpected: str, where: str) -> pa.Table:
    """The rows of some lines, with whole numbers above 2**63 where Arrow makes floats of them."""
    rows = _parsed(block, schema, unexpected=unexpected, where=where)
    columns = zip(rows.schema, rows.columns, strict=True)
    large = [field for field, column in columns if field.name not in schema.names and may_be_whole(column)]
    if not large:
        return rows
    objects = [json.loads(line) for line in block.splitlines() if line.strip()]
    exact = [
        field.with_type(exact_type(field.type, [one.get(field.name) for one in objects], name=field.name, where=where))
        for field in large
    ]
    if exact == large:
        return rows
    typed = pa.schema([*schema, *exact])
    return _parsed(block, typed, unexpected=unexpected, where=where).select(rows.column_names)


def _parsed(block: bytes, schema: pa.Schema, *, unexpected: str, where: str) -> pa.Table:
    from pyarrow import json as arrow_json

    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block))
    try:
        return arrow_json.read_json(io.BytesIO(block), read_options=reading, parse_options=parse)
    except pa.ArrowInvalid as error:
        raise DataUnavailable(f"{where}: {error}. {TYPES_REMEDY}") from error


def _blocks_of_lines(content: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about a block of them at a time; a longer line is a separate block."""
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


def _has_type(column: pa.Field) -> bool:
    return not pa.types.is_null(column.type)
