"""Merges configs, and changes single keys of a config. Pure; results are checked when they are parsed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from trek.client.wire_values import MAX_DEPTH
from trek.errors import InputError
from trek.experiments.config_spelling import canonical_path, respell_training
from trek.search.searcher_settings import OLD_LENGTHS, UNITS

_LENGTHS = {"max_length", *OLD_LENGTHS}


def merge_configs(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` overridden by `top`: mappings are merged, everything else is replaced.

    A mapping that is one of several alternatives (a hyperparameter, a length, a searcher) is replaced as a whole. A
    direction belongs to its metric: another metric on top does not take it over.
    """
    merged = copy.deepcopy(dict(base))
    for key, value in top.items():
        _drop_other_spellings(merged, key)
        old = merged.get(key)
        is_merged = isinstance(old, Mapping) and isinstance(value, Mapping) and not _is_alternative(key, old, value)
        if is_merged and key == "searcher":
            old = _without_stale_direction(old, metric=value.get("metric"))  # type: ignore[arg-type]
        merged[key] = merge_configs(old, value) if is_merged else copy.deepcopy(value)  # type: ignore[arg-type]
    return merged


def _without_stale_direction(searcher: Mapping[str, Any], *, metric: Any) -> dict[str, Any]:
    """The searcher block without the direction of a metric that `metric` replaces; as it is if None or the same."""
    kept = dict(searcher)
    if metric is not None and kept.get("metric", metric) != metric:
        kept.pop("smaller_is_better", None)
    return kept


def _is_alternative(key: str, old: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    names = {one["name"] for one in (old, value) if isinstance(one.get("name"), str)}
    is_other_searcher = key == "searcher" and len(names) == 2
    return "type" in value or is_other_searcher or set(value) <= set(UNITS)


def with_changes(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the keys in `changes` set; they are dotted paths in any accepted spelling."""
    changed = respell_training(config)
    if isinstance(changed.get("searcher"), Mapping):
        changed["searcher"] = _without_stale_direction(changed["searcher"], metric=changes.get("searcher.metric"))
    for dotted, value in changes.items():
        if not all(dotted.split(".")):
            raise InputError(f"invalid key {dotted!r}: expected a dotted name, such as searcher.max_trials.")
        keys = canonical_path(tuple(dotted.split(".")))
        if len(keys) > MAX_DEPTH:
            raise InputError(f"invalid key {dotted[:40]!r}…: expected at most {MAX_DEPTH} names, got {len(keys)}.")
        inner = changed
        for key in keys[:-1]:
            _drop_other_spellings(inner, key)
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        _drop_other_spellings(inner, keys[-1])
        inner[keys[-1]] = value
    return changed


def _drop_other_spellings(inner: dict[str, Any], key: str) -> None:
    """Remove the same length in another spelling or unit, which the new value replaces."""
    for spellings in (_LENGTHS, set(UNITS) if set(inner) <= set(UNITS) else set()):
        if key in spellings:
            for other in spellings - {key}:
                inner.pop(other, None)
