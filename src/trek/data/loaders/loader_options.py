"""Options of a DataLoader: which exist, which exclude each other, and which mean something for which kind of data.

An option that the data cannot follow is refused. One that only says how to read rows that need no reading is reported:
the batches are those that were requested.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import TensorDataset

from trek.errors import InputError

logger = logging.getLogger(__name__)

_DEFAULTS: dict[str, Any] = {
    **{p.name: p.default for p in inspect.signature(TorchDataLoader).parameters.values() if p.name != "dataset"},
    "shuffle": False,
    "global_batch_size": None,
    "tail": None,
    "columns": None,
    "is_sharded": False,
}
_SIZES = frozenset({"batch_size", "global_batch_size", "drop_last", "tail"})
_SAMPLING = frozenset({"sampler", "batch_sampler", "collate_fn"})
_READING = frozenset(
    {
        "num_workers", "worker_init_fn", "timeout", "multiprocessing_context", "prefetch_factor", "persistent_workers",
        "pin_memory", "pin_memory_device",
    }
)  # fmt: skip
_REASONS = {
    "generator": "the seed and the epoch decide the order of rows; a sampler may hold a generator of its own",
    "in_order": "batches come in the order in which a run can be resumed",
    "is_sharded": "Trek shares out the rows of data with a length",
    "columns": "only a Table and a dict of tensors have columns",
}


@dataclass(frozen=True)
class DataKind:
    """How a kind of data is read."""

    name: str
    reading: str
    options: frozenset[str]
    unneeded: frozenset[str] = frozenset()
    """Options that change nothing about the batches, and are not needed to read them."""


_WORKERS = _READING - {"pin_memory"}
TENSORS = DataKind(
    "tensors", "they are batched in memory by this process", _SIZES | {"shuffle", "pin_memory"}, _WORKERS
)
NAMED_TENSORS = DataKind(TENSORS.name, TENSORS.reading, TENSORS.options | {"columns"}, _WORKERS)
TABLE = DataKind("a Table", "it is batched by this process, where its rows lie", NAMED_TENSORS.options, _WORKERS)
SAMPLES = DataKind("a dataset", "it is read sample by sample", _SIZES | {"shuffle"} | _SAMPLING | _READING)
NAMED_SAMPLES = DataKind("rows", SAMPLES.reading, SAMPLES.options | {"columns"})
ITERABLE = DataKind(
    "an IterableDataset",
    "its samples are taken as they come",
    _SIZES | _READING | {"collate_fn", "generator", "is_sharded"},
)
BATCHES = DataKind("an iterable of batches", "they are taken as they come", frozenset({"is_sharded"}))


def require_options(names: Iterable[str]) -> None:
    """Refuse what neither this DataLoader nor torch's knows, and name what may have been meant."""
    for name in names:
        if name not in _DEFAULTS:
            near = difflib.get_close_matches(name, _DEFAULTS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(sorted(_DEFAULTS))}."
            raise InputError(f"DataLoader has no option {name!r}. {hint}")


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that differ from their defaults."""
    return {name: value for name, value in options.items() if not _is_default(name, value)}


def require_one_order(given: Mapping[str, Any]) -> None:
    """Refuse options that decide the same thing."""
    if "sampler" in given and "shuffle" in given:
        raise InputError("sampler and shuffle=True both decide the order of the rows. Give one of them.")
    if "drop_last" in given and given.get("tail", "drop") != "drop":
        raise InputError(
            f"drop_last=True and tail={given['tail']!r} both decide about the last batch. Give one of them."
        )
    decided = [name for name in (*sorted(_SIZES), "shuffle", "sampler") if name in given]
    if "batch_sampler" in given and decided:
        raise InputError(f"batch_sampler decides the batches, so {decided[0]} has no effect beside it. Leave it out.")


def require_meaning(given: Mapping[str, Any], kind: DataKind) -> None:
    """Refuse options that data of `kind` cannot follow, and report those that it does not need."""
    if unneeded := [name for name in given if name in kind.unneeded]:
        logger.warning("%s: no effect on %s, since %s.", ", ".join(unneeded), kind.name, kind.reading)
    for name, value in given.items():
        if name not in kind.options | kind.unneeded:
            shown = f"{name}={value!r}" if isinstance(value, str | int | float) else name
            reason = _REASONS.get(name, kind.reading)
            raise InputError(f"{shown} has no effect on {kind.name}: {reason}. Leave it out.")
    if kind is ITERABLE and given.get("tail") == "pad":
        raise InputError(
            f"tail='pad' needs rows that can be read again, but {kind.name} has none. Use 'drop' or 'keep'."
        )


def require_reading(given: Mapping[str, Any]) -> None:
    """Refuse values that torch's DataLoader refuses, of the options by which it reads."""
    reading = {name: value for name, value in given.items() if name in _READING}
    if "timeout" in reading and not reading.get("num_workers"):
        raise InputError(f"timeout={reading['timeout']!r} is for worker processes: set num_workers to 1 or more.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given again where it reads
            TorchDataLoader(TensorDataset(torch.zeros(1)), **reading)
    except (ValueError, TypeError) as error:
        raise InputError(f"DataLoader: {str(error).rstrip('.')}.") from error


def _is_default(name: str, value: Any) -> bool:
    return value is None or (type(value) in (bool, int, float, str) and value == _DEFAULTS[name])
