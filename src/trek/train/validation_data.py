"""Opens validation data before training: a run must not find out after its first epoch that it cannot be validated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trek.data.loaders import DataLoader, Loader, as_loader
from trek.errors import InputError
from trek.world import World

_MODULES_OF_ITERATORS = ("builtins", "itertools", "_io", "_csv")
"""A class from elsewhere may start again whenever it is iterated, although it is an iterator."""
_REMEDY = "Return at least one batch from build_validation_data_loader."


def open_validation_data(data: Any, *, world: World, seed: int) -> Loader:
    """The Loader of `data`; raises `InputError` if it is known to be empty, or can be read only once."""
    source = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, Iterator) and type(source).__module__ in _MODULES_OF_ITERATORS:
        raise InputError(
            f"build_validation_data_loader returned a {type(source).__name__}, which can be read only once: every "
            "validation after the first would be empty. Return a list, a DataLoader, or an object whose __iter__ "
            "starts again from the beginning."
        )
    try:
        loader = as_loader(data, world=world, seed=seed)
    except InputError as error:
        raise InputError(f"the validation data cannot be read: {error}") from error
    if loader.num_batches == 0 or (not isinstance(data, DataLoader) and _length(data) == 0):
        raise InputError(f"the validation data has no batch, got an empty {type(data).__name__}. {_REMEDY}")
    return loader


def _length(data: Any) -> int | None:
    """The length of the user's own object; a stream does not know it if it is shared by several processes."""
    try:
        return len(data)
    except TypeError:
        return None
