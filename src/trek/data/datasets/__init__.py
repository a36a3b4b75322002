"""The named data sets, one file each; a file is imported when its data set is asked for."""

from __future__ import annotations

from trek.data.datasets.base import Dataset, RemoteFile
from trek.errors import InputError
from trek.registry import Registry

_DATASETS = "trek.data.datasets"

DATASETS: Registry[Dataset] = Registry(
    "datasets",
    {
        "adult": f"{_DATASETS}.adult:DATASET",
        "criteo": f"{_DATASETS}.criteo:DATASET",
        "digits": f"{_DATASETS}.digits:DATASET",
        "fashion-mnist": f"{_DATASETS}.fashion_mnist:DATASET",
        "mnist": f"{_DATASETS}.mnist:DATASET",
        "sst2": f"{_DATASETS}.sst2:DATASET",
    },
    word="data set",
    base=f"{_DATASETS}.base:Dataset",
)

__all__ = ["DATASETS", "Dataset", "RemoteFile", "dataset_names", "find_dataset", "is_dataset"]


def dataset_names() -> list[str]:
    """Every name `find_dataset` knows."""
    return DATASETS.names()


def is_dataset(name: str) -> bool:
    """Whether there is a data set called `name`; underscores read as dashes."""
    return _key(name) in DATASETS


def find_dataset(name: str) -> Dataset:
    """The data set called `name`; underscores read as dashes."""
    key = _key(name)
    dataset = DATASETS.load(key)
    if dataset.name != key:
        raise InputError(f"the data set registered as {key!r} has the name {dataset.name!r}. Use one name for both.")
    return dataset


def _key(name: str) -> str:
    return name.lower().replace("_", "-")
