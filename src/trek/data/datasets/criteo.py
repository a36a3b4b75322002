"""Criteo: a sample of 8,000 display advertisements, and whether they were clicked.

The sample has no public URL: put its files on a mirror (`TREK_DATA_MIRROR`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trek.data.datasets.base import Dataset, RemoteFile

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))


def parse_criteo(paths: Mapping[str, Path], split: str) -> pa.Table:
    """Columns label, I1 to I13 (int32) and C1 to C26 (hashed text); what is empty is missing."""
    import pyarrow as pa
    from pyarrow import csv

    types = {"label": pa.int8(), **dict.fromkeys(NUMBERS, pa.int32()), **dict.fromkeys(CATEGORIES, pa.string())}
    return csv.read_csv(
        paths[f"{split}.tsv.gz"],
        read_options=csv.ReadOptions(column_names=list(types)),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""]),
    ).combine_chunks()


DATASET = Dataset(
    name="criteo",
    title="Display advertisements: 13 numbers, 26 hashed categories, clicked or not",
    licence="the terms of the Criteo display advertising challenge: internal test use",
    homepage="https://www.kaggle.com/c/criteo-display-ad-challenge",
    splits={
        "train": [
            RemoteFile("train.tsv.gz", 620678, "eb90d5d9c74fdb3fb22c6bafc11c10f6c2407bf3a8d502754d72a7ff1f9df30e")
        ],
        "dev": [RemoteFile("dev.tsv.gz", 36761, "8fa7cf9cae89f0a06b707a091c792f11318874fa5a16ec28cf4cb00aafb342bf")],
        "test": [RemoteFile("test.tsv.gz", 35241, "7add08f6211f2a254de6b7b8743508584978d326dbda9a350bc61fc751a00d8a")],
    },
    parse=parse_criteo,
    num_rows={"train": 7200, "dev": 409, "test": 391},
)
