"""Digits: 1,797 handwritten digits, 8×8 grey, bundled with scikit-learn; nothing to download."""

from __future__ import annotations

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

    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(
            "data set 'digits' comes with scikit-learn, which is not installed. Run: pip install scikit-learn."
        ) from error
    bundle = load_digits()
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(bundle.target))
    rows = np.sort(order[:_NUM_TEST] if split == "test" else order[_NUM_TEST:])
    images, labels = bundle.images[rows].astype(np.uint8), bundle.target[rows].astype(np.uint8)
    return pa.table({"image": to_column(images, name="image"), "label": to_column(labels, name="label")})


DATASET = Dataset(
    name="digits",
    title="Handwritten digits, 8×8 grey, bundled with scikit-learn",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/80",
    splits={"train": (), "test": ()},
    parse=parse_digits,
    num_rows={"train": 1797 - _NUM_TEST, "test": _NUM_TEST},
)
