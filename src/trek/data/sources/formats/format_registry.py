"""File formats by the suffix of a file's name."""

from __future__ import annotations

import posixpath

from trek.data.sources.formats.base import FileFormat
from trek.registry import Registry

_FORMATS = "trek.data.sources.formats"

FORMATS: Registry[type[FileFormat]] = Registry(
    "formats",
    {
        "parquet": f"{_FORMATS}.parquet:ParquetFormat",
        "csv": f"{_FORMATS}.separated:CsvFormat",
        "tsv": f"{_FORMATS}.separated:TsvFormat",
        "jsonl": f"{_FORMATS}.json_lines:JsonLinesFormat",
        "ndjson": f"{_FORMATS}.json_lines:JsonLinesFormat",
        "json": f"{_FORMATS}.json_lines:JsonLinesFormat",
        "arrow": f"{_FORMATS}.arrow:ArrowFormat",
        "feather": f"{_FORMATS}.arrow:ArrowFormat",
        "npy": f"{_FORMATS}.arrays:NumpyFormat",
        "npz": f"{_FORMATS}.arrays:NumpyFormat",
        "idx": f"{_FORMATS}.idx:IdxFormat",
    },
    word="file format",
    base=f"{_FORMATS}.base:FileFormat",
)
"""By suffix without its dot, in lower case."""
PACKINGS = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed files."""
TYPES_REMEDY = "If a column is of another type than its first rows look like, say so: open(…, types={'x': 'float64'})."


def format_of(suffix: str) -> FileFormat:
    """The format of files with this suffix."""
    return FORMATS.load(suffix)()


def suffix_of(path: str) -> str:
    """The suffix that names the format: in lower case, without its dot and without one for compression."""
    name = posixpath.basename(path)
    for packing in PACKINGS:
        name = name.removesuffix(packing)
    if "-idx" in name or name.endswith("-ubyte"):
        return "idx"
    return posixpath.splitext(name)[1].lower().removeprefix(".")
