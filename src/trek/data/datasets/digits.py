"""Digits: 1,797 handwritten digits, 8×8 grey, bundled with scikit-learn; nothing to download."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trek.data.datasets.base import Dataset
from trek.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_NUM_TEST = 360
_SPLIT_SEED = 1797


def parse_digits(paths: Mapping[str, Path], split: str) -> pa.Table:
    """Columns image (8×8 uint8, values 0 to 16) and label (uint8); a fixed fifth of the rows is the test split."""
    import numpy as np
    import pyarrow as pa

    from trek.data.tensors import to_column

    table = np.loadtxt(_bundled_file(), delimiter=",", dtype=np.uint8)
    labels, images = table[:, -1], table[:, :-1].reshape(-1, 8, 8)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    rows = np.sort(order[:_NUM_TEST] if split == "test" else order[_NUM_TEST:])
    return pa.table({"image": to_column(images[rows], name="image"), "label": to_column(labels[rows], name="label")})


def _bundled_file() -> Path:
    """Where scikit-learn keeps the rows. It is not imported, since that takes seconds."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise InputError(
            "data set 'digits' comes with scikit-learn, which is not installed. Run: pip install scikit-learn."
        )
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


DATASET = Dataset(
    name="digits",
    title="Handwritten digits, 8×8 grey, bundled with scikit-learn",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/80",
    splits={"train": (), "test": ()},
    parse=parse_digits,
    num_rows={"train": 1797 - _NUM_TEST, "test": _NUM_TEST},
)
