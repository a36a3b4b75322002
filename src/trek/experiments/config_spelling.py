"""Old and alternative spellings of a config, rewritten to today's. Mistakes pass through for validation to name."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping
from typing import Any

from trek.search.searcher_settings import respell
from trek.search.space import TYPES

# Known by an older name: shown as near matches too.
OLD_KEYS: dict[tuple[str, ...], set[str]] = {
    (): {"batches_per_step"},
    ("checkpoint_storage",): {"host_path", "storage_path", "container_path", "bucket", "container", "prefix"},
    ("optimizations",): {"mixed_precision"},
}
_ONE_NAME = re.compile(r"[\w.]*(:\w*)*")
"""Meant as module:Class, whether it is one or not."""
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_STORAGE_TYPES = {"shared_fs": "directory", "local": "directory"}
_CLOUDS = {"s3": "s3", "gcs": "gs", "gs": "gs", "azure": "abfs"}
"""Kinds of storage that are named by a bucket, and the scheme of their URLs."""


def respell_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` in today's spelling."""
    new = copy.deepcopy(dict(raw))
    if "batches_per_step" in new and "scheduling_unit" not in new:
        new["scheduling_unit"] = new.pop("batches_per_step")
    if not new.get("name") and isinstance(new.get("description"), str) and new["description"].strip():
        new["name"] = new["description"].strip()[:200]
    _respell_entrypoint(new)
    _respell_lengths(new)
    _respell_storage(new)
    _respell_precision(new)
    _respell_environment(new)
    _respell_policies(new)
    if isinstance(new.get("hyperparameters"), Mapping):
        new["hyperparameters"] = _bare_constants(new["hyperparameters"])
    return new


def _respell_entrypoint(new: dict[str, Any]) -> None:
    """A command in one line as its words."""
    text = new.get("entrypoint")
    if isinstance(text, str) and not _ONE_NAME.fullmatch(text.strip()):
        try:
            new["entrypoint"] = shlex.split(text)
        except ValueError:
            return  # a quote that does not end


def _respell_lengths(new: dict[str, Any]) -> None:
    unit = new.get("scheduling_unit", 100)
    batches_per_step = unit if isinstance(unit, int) and not isinstance(unit, bool) and unit > 0 else 100
    searcher = new.get("searcher")
    counts_steps = False
    if isinstance(searcher, Mapping):
        counts_steps = "max_steps" in searcher or "steps_per_round" in searcher
        new["searcher"] = respell(searcher, batches_per_step=batches_per_step)
    for key in _PERIODS:
        period = new.get(key)
        if isinstance(period, int) and not isinstance(period, bool):
            if period == 0:
                new.pop(key)
            else:
                # A config whose searcher counts steps counts its periods in steps too.
                new[key] = {"batches": period * (batches_per_step if counts_steps else 1)}


def _respell_storage(new: dict[str, Any]) -> None:
    storage = new.get("checkpoint_storage")
    if isinstance(storage, str):
        new["checkpoint_storage"] = {"type": "directory", "path": storage}
    if not isinstance(storage, dict):
        return
    _respell_bucket(storage)
    kind = storage.get("type")
    if isinstance(kind, str):
        storage["type"] = _STORAGE_TYPES.get(kind, kind)
    base = storage.pop("host_path", None) or storage.pop("container_path", None)
    inner = storage.pop("storage_path", None)
    if isinstance(base, str) and "path" not in storage:
        storage["path"] = f"{base.rstrip('/')}/{inner}" if isinstance(inner, str) else base
    if "path" in storage:
        storage.setdefault("type", "directory")


def _respell_bucket(storage: dict[str, Any]) -> None:
    """`{type: s3, bucket: b, prefix: p}` as the URL s3://b/p."""
    scheme = _CLOUDS.get(str(storage.get("type")))
    if scheme is None:
        if "url" in storage:
            storage.setdefault("type", "url")
        return
    bucket = storage.get("bucket") or storage.get("container")
    if isinstance(bucket, str) and "url" not in storage:
        prefix = storage.pop("prefix", None)
        storage.pop("bucket", None)
        storage.pop("container", None)
        storage["url"] = "/".join([f"{scheme}://{bucket}", *([prefix.strip("/")] if isinstance(prefix, str) else [])])
    storage["type"] = "url"


def _respell_precision(new: dict[str, Any]) -> None:
    optimizations = new.get("optimizations")
    if isinstance(optimizations, dict) and "mixed_precision" in optimizations:
        wanted = optimizations.pop("mixed_precision")
        if wanted not in (None, False, "O0"):
            new.setdefault("precision", "bf16")


def _respell_environment(new: dict[str, Any]) -> None:
    environment = new.get("environment")
    if not isinstance(environment, dict):
        return
    variables = environment.get("environment_variables")
    if isinstance(variables, list) and all(isinstance(item, str) for item in variables):
        pairs = (item.partition("=") for item in variables)
        environment["environment_variables"] = {name: value for name, _, value in pairs}
    elif isinstance(variables, dict):
        environment["environment_variables"] = {
            key: str(value) if isinstance(value, int | float) else value for key, value in variables.items()
        }


def _respell_policies(new: dict[str, Any]) -> None:
    policies = new.get("log_policies")
    for policy in policies if isinstance(policies, list) else []:
        if isinstance(policy, dict) and isinstance(policy.get("action"), Mapping):
            policy["action"] = policy["action"].get("type")


def _bare_constants(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`{type: const, val: x}` as x, unless x itself would then read as a parameter or vanish as a condition."""
    new: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, Mapping) and value.get("type") == "const" and set(value) == {"type", "val"}:
            val = value["val"]
            new[str(key)] = dict(value) if isinstance(val, Mapping) else val
        elif isinstance(value, Mapping) and value.get("type") not in TYPES:
            new[str(key)] = _bare_constants(value)
        else:
            new[str(key)] = value
    return new
