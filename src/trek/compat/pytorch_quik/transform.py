"""`pq.transform`: labels from categories, and splits that keep the shares of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from trek.errors import InputError


@dataclass(frozen=True)
class DataSplit:
    """Inputs and labels of one part."""

    X: np.ndarray
    y: np.ndarray


def create_dicts(categories: Sequence[int], labels: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Categories by their index, and labels by their index."""
    return dict(enumerate(categories)), dict(enumerate(labels))


def create_labels(
    df: pd.DataFrame, labels: Sequence[int] = (0, 0, 1, 2, 2), category: str = "category"
) -> pd.DataFrame:
    """`df` with a column `label`: the n-th of `labels` for the n-th smallest category."""
    categories = sorted(df[category].unique())
    if len(categories) != len(labels):
        raise InputError(f"column {category!r} has {len(categories)} categories, and there are {len(labels)} labels.")
    return df.assign(label=df[category].map(dict(zip(categories, labels, strict=True))))


def imbalanced_split(
    df: pd.DataFrame,
    label_name: str = "label",
    test_size: float = 0.1,
    valid_size: float | None = None,
    random_state: int = 42,
) -> dict[str, DataSplit]:
    """`train`, `test` and, with a size, `valid`: parts with the same shares of every label."""
    generator = np.random.default_rng(random_state)
    sizes = {"test": test_size, **({"valid": valid_size} if valid_size else {})}
    if not 0 < sum(sizes.values()) < 1:
        raise InputError(f"test_size and valid_size must leave rows for training, got {sizes}.")
    chosen: dict[str, list[Any]] = {"train": [], **{name: [] for name in sizes}}
    for _, rows in df.groupby(label_name):
        order, begin = generator.permutation(rows.index.to_numpy()), 0
        for name, size in sizes.items():
            end = begin + max(round(len(rows) * size), 1)
            chosen[name].append(order[begin:end])
            begin = end
        chosen["train"].append(order[begin:])
    parts = {name: df.loc[generator.permutation(np.concatenate(index))] for name, index in chosen.items()}
    return {
        name: DataSplit(X=part.drop(columns=label_name).to_numpy(), y=part[label_name].to_numpy())
        for name, part in parts.items()
    }
