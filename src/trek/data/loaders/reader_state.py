"""ReaderState: what a user's sampler, dataset or iterable must get back, so that a resumed run reads the same rows.

Saved are random generators of their own, and what their iteration changes: numbers, and a sampler's lists and arrays of
numbers. What cannot be saved is named in a warning. Knows nothing of epochs and batches.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

from trek.data.loaders.own_generators import (
    attributes,
    find_generators,
    generator_state,
    restore_generator,
    walk,
)

logger = logging.getLogger(__name__)


class ReaderState:
    """The state of some objects that are read from.

    `ordering` objects decide which rows come when (samplers, iterables): their counters count, too. `reading` ones
    (map-style datasets, collate functions) are asked for rows: only their generators matter.
    """

    def __init__(self, *, ordering: Mapping[str, Any] | None = None, reading: Mapping[str, Any] | None = None) -> None:
        self._ordering = {name: one for name, one in (ordering or {}).items() if one is not None}
        self._reading = {name: one for name, one in (reading or {}).items() if one is not None}
        # What a run is made with is the user's to change; only what iteration changed since is state.
        self._made_with = {path: _digest(value) for path, value, _ in _variables(self._ordering)}
        self._warned = False

    def state_dict(self) -> dict[str, Any]:
        """The states, by path."""
        self._warn_of_iterators()
        changed = {
            path: _plain(value) for path, value, _ in _variables(self._ordering) if self._is_changed(path, value)
        }
        state = {
            "order": _generator_states(self._ordering),
            "reading": _generator_states(self._reading),
            "variables": changed,
        }
        return {part: values for part, values in state.items() if values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; objects that no longer exist are skipped."""
        for roots, part in ((self._ordering, "order"), (self._reading, "reading")):
            if part in state:
                found = find_generators(roots)
                for path, saved in state[part].items():
                    if path in found:
                        restore_generator(found[path], saved)
        if "variables" in state:
            for path, _, assign in list(_variables(self._ordering)):
                if path in state["variables"]:
                    assign(state["variables"][path])

    def holds_iterator(self) -> bool:
        """Whether what orders the rows is an iterator or holds one, so that nothing can be read of it twice."""
        return any(hasattr(one, "__next__") for _, one in _walk(self._ordering))

    def _is_changed(self, path: str, value: Any) -> bool:
        digest = _digest(value)
        return digest is not None and digest != self._made_with.get(path)

    def _warn_of_iterators(self) -> None:
        if self._warned:
            return
        self._warned = True
        roots = [id(one) for one in self._ordering.values()]
        for path, value in _walk(self._ordering):
            if hasattr(value, "__next__") and id(value) not in roots:
                logger.warning(
                    "%s holds a %s, whose position cannot be saved: a resumed run may read other rows. Make it anew in "
                    "__iter__.", path, type(value).__name__,
                )  # fmt: skip


def _generator_states(roots: Mapping[str, Any]) -> dict[str, Any]:
    return {path: generator_state(one) for path, one in find_generators(roots).items()} if roots else {}


_Variable = tuple[str, Any, Callable[[Any], None]]


def _variables(roots: Mapping[str, Any]) -> Iterator[_Variable]:
    """Attributes that are numbers, or for samplers lists or arrays of numbers; with the function that assigns them."""
    for path, holder in _walk(roots):
        if not hasattr(holder, "__dict__") and not hasattr(type(holder), "__slots__"):
            continue
        for name, value in attributes(holder):
            if type(value) in (int, float) or (isinstance(holder, Sampler) and _is_sequence(value)):
                yield f"{path}.{name}", value, partial(_assign, holder, name, value)


def _walk(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What belongs to the order of rows: not the map-style dataset that a sampler refers to."""
    for path, value in walk(roots):
        if not (isinstance(value, Dataset) and not isinstance(value, IterableDataset)) and not callable(value):
            yield path, value


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | deque | np.ndarray | torch.Tensor)


def _digest(value: Any) -> Any:
    """Differs if the value was changed (for a tensor: written to); None for a list of other things than numbers."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, np.ndarray):
        return value.shape, hash(value.tobytes())
    try:
        return hash(_frozen(value)) if _is_sequence(value) else value
    except TypeError:
        return None


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple | deque):
        return tuple(map(_frozen, value))
    if isinstance(value, int | float):
        return value
    raise TypeError


def _plain(value: Any) -> Any:
    if not isinstance(value, list | deque):
        return value.copy() if isinstance(value, np.ndarray) else value
    if all(type(one) is int for one in value):
        return np.array(value, dtype=np.int64)
    return [list(one) if isinstance(one, list | tuple | deque) else one for one in value]


def _assign(holder: Any, name: str, old: Any, new: Any) -> None:
    if isinstance(old, list | deque):  # in place: others may refer to the same list
        kind = next((type(one) for one in old), None)
        items = new.tolist() if isinstance(new, np.ndarray) else new
        old.clear()
        old.extend(kind(one) if kind in (tuple, deque) and isinstance(one, list) else one for one in items)
    elif isinstance(old, torch.Tensor) and old.shape == new.shape:
        with torch.no_grad():
            old.copy_(new)
    elif isinstance(old, np.ndarray) and old.shape == new.shape and old.flags.writeable:
        old[...] = new
    else:
        setattr(holder, name, new)
