"""Adult: census rows of 48,842 people, and whether they earn more than 50,000 dollars a year."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trek.data.datasets.base import Dataset, RemoteFile

if TYPE_CHECKING:
    import pyarrow as pa

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"

NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)


def parse_adult(paths: Mapping[str, Path], split: str) -> pa.Table:
    """Fourteen features, and label: 1 for an income above 50K. Unknown values ('?') are missing."""
    import pyarrow as pa

    lines = paths["adult.data" if split == "train" else "adult.test"].read_text().splitlines()
    # The test file opens with a remark, ends its labels with a dot, and both end with an empty line.
    rows = [line.rstrip(".").split(", ") for line in lines if line.count(", ") == len(COLUMNS) - 1]
    texts = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    columns = {name: _parse_column(name, texts[name]) for name in COLUMNS if name != "income"}
    columns["label"] = pa.array([int(income == ">50K") for income in texts["income"]], pa.int64())
    return pa.table(columns)


def _parse_column(name: str, texts: tuple[str, ...]) -> pa.Array:
    import pyarrow as pa

    if name in NUMBERS:
        return pa.array([int(text) for text in texts], pa.int64())
    return pa.array([None if text == "?" else text for text in texts], pa.string())


DATASET = Dataset(
    name="adult",
    title="Census rows, and whether the income is above 50K",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/2",
    splits={
        "train": [
            RemoteFile(
                "adult.data",
                3974305,
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
                "5d7c39d7b8804f071cdd1f2a7c460872",
                urls=[f"{_UCI}/adult.data"],
            )
        ],
        "test": [
            RemoteFile(
                "adult.test",
                2003153,
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
                "35238206dfdf7f1fe215bbb874adecdc",
                urls=[f"{_UCI}/adult.test"],
            )
        ],
    },
    parse=parse_adult,
    num_rows={"train": 32561, "test": 16281},
)
