"""`pq.transform`: labels from categories, and splits by label whose training part is balanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from trek.errors import InputError


@dataclass(frozen=True)
class DataSplit:
    """Inputs and labels of one part."""

    X: np.ndarray
    y: np.ndarray


def create_dicts(categories: Sequence[int], labels: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """The index of each category, and its label, as `Series.replace` takes them."""
    pairs = list(zip(categories, labels, strict=True))
    return {category: index for index, (category, _) in enumerate(pairs)}, dict(pairs)


def create_labels(
    df: pd.DataFrame, labels: Sequence[int] = (0, 0, 1, 2, 2), category: str = "category"
) -> pd.DataFrame:
    """`df` itself, with columns `cat_index` and `label`: the n-th of `labels` for the n-th smallest category."""
    categories = sorted(df[category].unique())
    if len(categories) != len(labels):
        raise InputError(f"column {category!r} has {len(categories)} categories, and there are {len(labels)} labels.")
    index, label = create_dicts(categories, labels)
    df["cat_index"] = df[category].map(index)
    df["label"] = df[category].map(label)
    return df


def imbalanced_split(
    df: pd.DataFrame,
    label_name: str = "label",
    test_size: float = 0.1,
    valid_size: float | None = None,
    random_state: int = 42,
) -> dict[str, DataSplit]:
    """`train`, `valid` (with a size) and `test`: parts without a common row, each with its share of every label.

    `valid_size` is a share of what the test leaves. Rows of `train` are then repeated at random until it has the same
    number of every label.
    """
    labels, generator = df[label_name].to_numpy(), np.random.default_rng(random_state)
    if df[label_name].isna().any():
        raise InputError(f"column {label_name!r} has rows without a label. Drop them before the split.")
    train, test = _divided(np.arange(len(df)), labels, test_size, name="test_size", generator=generator)
    chosen = {"test": test}
    if valid_size is not None:
        train, valid = _divided(train, labels, valid_size, name="valid_size", generator=generator)
        chosen = {"valid": valid, **chosen}
    chosen = {"train": _balanced(train, labels, generator=generator), **chosen}
    inputs = df.drop(columns=label_name).to_numpy()
    return {name: DataSplit(X=inputs[rows], y=labels[rows]) for name, rows in chosen.items()}


def _divided(
    rows: np.ndarray, labels: np.ndarray, size: float, *, name: str, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of the rows, and a part with the share `size` of each label, both in a random order."""
    if not 0 < size < 1:
        raise InputError(f"{name} must be a share of the rows between 0 and 1, got {size!r}.")
    left, taken = [], []
    for label in np.unique(labels):
        order = generator.permutation(rows[labels[rows] == label])
        num = max(round(len(order) * size), 1)
        if num >= len(order):
            raise InputError(f"label {label} has {len(order)} rows, too few for {name} {size}. Add rows or drop it.")
        taken.append(order[:num])
        left.append(order[num:])
    return generator.permutation(np.concatenate(left)), generator.permutation(np.concatenate(taken))


def _balanced(rows: np.ndarray, labels: np.ndarray, *, generator: np.random.Generator) -> np.ndarray:
    """All rows, and random ones again until every label has as many as the most frequent one."""
    by_label = [rows[labels[rows] == label] for label in np.unique(labels)]
    most = max(map(len, by_label))
    again = [generator.choice(own, most - len(own)) for own in by_label]
    return generator.permutation(np.concatenate([rows, *again]))
