"""The named data sets, one file each; a file is imported when its data set is asked for."""

from __future__ import annotations

import difflib
import importlib

from trek.data.datasets.base import Dataset, RemoteFile
from trek.errors import InputError

_HOMES = {
    "adult": "trek.data.datasets.adult",
    "criteo": "trek.data.datasets.criteo",
    "digits": "trek.data.datasets.digits",
    "fashion-mnist": "trek.data.datasets.fashion_mnist",
    "mnist": "trek.data.datasets.mnist",
    "sst2": "trek.data.datasets.sst2",
}

__all__ = ["Dataset", "RemoteFile", "dataset_names", "find_dataset"]


def dataset_names() -> list[str]:
    """Every name `find_dataset` knows."""
    return sorted(_HOMES)


def find_dataset(name: str) -> Dataset:
    """The data set called `name`; underscores read as dashes."""
    key = name.lower().replace("_", "-")
    if key not in _HOMES:
        near = difflib.get_close_matches(key, _HOMES, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise InputError(f"data set {name!r} does not exist. {hint}There are: {', '.join(dataset_names())}.")
    dataset: Dataset = importlib.import_module(_HOMES[key]).DATASET
    return dataset
