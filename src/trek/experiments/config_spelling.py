"""Rewrites old and alternative spellings of a config to the current one. Mistakes are left for validation to report."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping
from typing import Any

from trek.experiments.config_ignored import split_ignored
from trek.search.searcher_settings import respell
from trek.search.space import TYPES

# Older names of keys, which are also suggested as close matches.
OLD_KEYS: dict[tuple[str, ...], set[str]] = {
    (): {
        "batches_per_step", "strategy", "precision", "scheduling_unit", "min_validation_period",
        "min_checkpoint_period", "checkpoint_policy", "records_per_epoch", "perform_initial_validation",
    },
    ("checkpoint_storage",): {
        "host_path", "storage_path", "container_path", "bucket", "container", "prefix", "hdfs_url", "hdfs_path",
    },
    ("optimizations",): {"mixed_precision", "aggregation_frequency", "clip_norm"},
}  # fmt: skip
TRAINING: dict[tuple[str, ...], str] = {
    ("strategy",): "strategy",
    ("precision",): "precision",
    ("scheduling_unit",): "report_period",
    ("min_validation_period",): "validation_period",
    ("min_checkpoint_period",): "checkpoint_period",
    ("checkpoint_policy",): "checkpoint_policy",
    ("records_per_epoch",): "records_per_epoch",
    ("perform_initial_validation",): "initial_validation",
    ("optimizations", "aggregation_frequency"): "accumulate",
    ("optimizations", "clip_norm"): "clip_norm",
}
"""Other keys for settings of `training`."""
_ONE_NAME = re.compile(r"[\w.]*(:\w*)*")
"""Text that is meant as module:Class, valid or not."""
_LAUNCHERS = ("determined.launch.", "determined.exec.")
"""Modules that start the processes of a trial, which the engine does here."""
_PERIODS = ("validation_period", "checkpoint_period")
_PROFILED_BATCHES = 10
_NO_ACTIONS = {"exclude_node", "signal"}
"""Actions of log policies that have no effect here."""
_DEVICES = {"cpu", "gpu", "cuda", "rocm"}
"""Kinds of devices, for which others write environment variables apart; here all of them apply."""
_FREE_FORM = ("data", "hyperparameters")
_STORAGE_TYPES = {"shared_fs": "directory", "local": "directory"}
_CLOUDS = {"s3": "s3", "gcs": "gs", "gs": "gs", "azure": "abfs"}
"""Storage types that are given by a bucket, and the scheme of their URLs."""


def respell_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` in the current spelling."""
    new, ignored = split_ignored(_without_nulls(raw))
    if "batches_per_step" in new and "scheduling_unit" not in new:
        new["scheduling_unit"] = new.pop("batches_per_step")
    if not new.get("name") and isinstance(new.get("description"), str) and new["description"].strip():
        new["name"] = new["description"].strip().splitlines()[0][:200]
    ignored += _respell_entrypoint(new)
    _respell_precision(new)
    new = respell_training(new)
    _respell_start(new)
    _respell_lengths(new)
    _respell_storage(new)
    _respell_profiling(new)
    _respell_environment(new)
    _respell_resources(new)
    ignored += _respell_policies(new)
    if isinstance(new.get("labels"), str):
        new["labels"] = [new["labels"]]
    if ignored:
        noted = new.get("without_effect")
        new["without_effect"] = [*(noted if isinstance(noted, list) else []), *ignored]
    if isinstance(new.get("hyperparameters"), Mapping):
        new["hyperparameters"] = _bare_constants(new["hyperparameters"])
    return new


def _without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` without keys that are null, which means the default; free-form parts keep theirs."""
    return {
        key: value
        if key in _FREE_FORM or not isinstance(value, Mapping)
        else {inner: one for inner, one in value.items() if one is not None}
        for key, value in raw.items()
        if value is not None
    }


def respell_training(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with settings of `training` that are written elsewhere moved there.

    A setting with different values in both places is left for validation to reject.
    """
    new = copy.deepcopy(dict(raw))
    for old, name in TRAINING.items():
        holder = new
        for key in old[:-1]:
            holder = holder.get(key) if isinstance(holder, dict) else None  # type: ignore[assignment]
        if not isinstance(holder, dict) or old[-1] not in holder:
            continue
        training = new.setdefault("training", {})
        if isinstance(training, dict) and training.get(name, holder[old[-1]]) == holder[old[-1]]:
            training[name] = holder.pop(old[-1])
    return new


def canonical_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path of the key at `path` in the current spelling."""
    for old, name in TRAINING.items():
        if path[: len(old)] == old:
            return ("training", name, *path[len(old) :])
    return path


def written_path(path: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """The path under which a file, given by the `lines` of its keys, has the key at `path` in the current spelling."""
    for old, name in TRAINING.items():
        if path[:2] == ("training", name) and path[:2] not in lines and old in lines:
            return (*old, *path[2:])
    return path


def _respell_entrypoint(new: dict[str, Any]) -> list[str]:
    """Split a command into words, without a launcher of Determined; what is left out."""
    text = new.get("entrypoint")
    if isinstance(text, str) and not _ONE_NAME.fullmatch(text.strip()):
        try:
            new["entrypoint"] = shlex.split(text)
        except ValueError:
            return []  # an unclosed quote
    words = new.get("entrypoint")
    launched = _launched(words) if isinstance(words, list) and all(isinstance(one, str) for one in words) else None
    if not isinstance(words, list) or launched is None:
        return []
    new["entrypoint"] = launched
    return [f"{words[2]} in the entrypoint (the processes of a trial are started without it)"]


def _launched(words: list[str]) -> str | list[str] | None:
    """What `python3 -m determined.launch.… [options] [--] COMMAND | --trial module:Class` starts; None for others."""
    if len(words) < 4 or words[1] != "-m" or not words[2].startswith(_LAUNCHERS):
        return None
    rest = words[3:]
    if "--trial" in rest[:-1]:
        return rest[rest.index("--trial") + 1]
    if "--" in rest:
        return rest[rest.index("--") + 1 :]
    begin = next((at for at, word in enumerate(rest) if not word.startswith("-")), len(rest))
    found = rest[begin:]
    return found[0] if len(found) == 1 and ":" in found[0] else found


def _respell_start(new: dict[str, Any]) -> None:
    """Rewrite a searcher's `source_checkpoint_uuid` or `source_trial_id` to `start_from`."""
    searcher = new.get("searcher")
    if not isinstance(searcher, dict) or new.get("start_from") is not None:
        return
    if isinstance(searcher.get("source_checkpoint_uuid"), str):
        new["start_from"] = searcher.pop("source_checkpoint_uuid")
    elif isinstance(searcher.get("source_trial_id"), int):
        new["start_from"] = f"trial:{searcher.pop('source_trial_id')}"


def _respell_lengths(new: dict[str, Any]) -> None:
    written = new.get("training")
    training: dict[str, Any] = written if isinstance(written, dict) else {}
    unit = training.get("report_period", 100)
    batches_per_step = unit if isinstance(unit, int) and not isinstance(unit, bool) and unit > 0 else 100
    if training.get("records_per_epoch") == 0:
        training.pop("records_per_epoch")
    searcher = new.get("searcher")
    counts_steps = False
    if isinstance(searcher, Mapping):
        counts_steps = "max_steps" in searcher or "steps_per_round" in searcher
        new["searcher"] = respell(searcher, batches_per_step=batches_per_step)
    for key in _PERIODS:
        period = training.get(key)
        if isinstance(period, Mapping) and list(period.values()) == [0]:
            training.pop(key)  # no period of its own
        elif isinstance(period, int) and not isinstance(period, bool):
            if period == 0:
                training.pop(key)
            else:
                # A config whose searcher counts steps counts its periods in steps too.
                training[key] = {"batches": period * (batches_per_step if counts_steps else 1)}


def _respell_profiling(new: dict[str, Any]) -> None:
    """Rewrite `profiling` to `training.profile`; without an end, it covers a few batches."""
    profiling = new.get("profiling")
    if not isinstance(profiling, dict) or profiling.get("enabled") is not True:
        return
    begin, end = profiling.get("begin_on_batch") or 1, profiling.get("end_after_batch")
    if not isinstance(begin, int) or not isinstance(end, int | None):
        return
    last = end if end is not None else begin + _PROFILED_BATCHES - 1
    training = new.setdefault("training", {})
    if isinstance(training, dict):
        training.setdefault("profile", {"first": begin, "last": last})
        new.pop("profiling")


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
    """Rewrite `{type: s3, bucket: b, prefix: p}` to the URL s3://b/p, and WebHDFS's address likewise."""
    if storage.get("type") == "hdfs" and isinstance(storage.get("hdfs_url"), str):
        host = re.sub(r"^\w+://", "", storage.pop("hdfs_url").split(";")[0]).rstrip("/")
        storage["url"] = f"webhdfs://{host}/{str(storage.pop('hdfs_path', '')).strip('/')}"
        storage["type"] = "url"
        return
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
            training = new.get("training")
            if "precision" not in new and not (isinstance(training, dict) and "precision" in training):
                new["precision"] = "bf16"


def _respell_resources(new: dict[str, Any]) -> None:
    """A trial without GPUs, which others write as 0 slots, has one process here."""
    resources = new.get("resources")
    if not isinstance(resources, dict):
        return
    if "slots" in resources and "slots_per_trial" not in resources:
        resources["slots_per_trial"] = resources.pop("slots")
    if resources.get("slots_per_trial") == 0:
        resources["slots_per_trial"] = 1


def _respell_environment(new: dict[str, Any]) -> None:
    environment = new.get("environment")
    if not isinstance(environment, dict):
        return
    variables = environment.get("environment_variables")
    if isinstance(variables, dict) and variables and set(variables) <= _DEVICES:
        parts = [part if isinstance(part, list) else [part] for part in variables.values()]
        variables = [item for part in parts for item in part]
    if isinstance(variables, list) and all(isinstance(item, str) for item in variables):
        pairs = (item.partition("=") for item in variables)
        environment["environment_variables"] = {name: value for name, _, value in pairs}
    elif isinstance(variables, dict):
        environment["environment_variables"] = {
            key: str(value) if isinstance(value, int | float) else value for key, value in variables.items()
        }


def _respell_policies(new: dict[str, Any]) -> list[str]:
    """Rewrite `{type: action}` and lists of actions; drops policies without a known action, and returns their names."""
    policies = new.get("log_policies")
    if not isinstance(policies, list):
        return []
    kept, dropped = [], []
    for policy in policies:
        actions = _actions(policy)
        if actions and "cancel_retries" not in actions and actions <= _NO_ACTIONS:
            dropped.append(f"log_policies: {', '.join(sorted(actions))}")
            continue
        if actions:
            policy.pop("actions", None)
            policy["action"] = "cancel_retries" if "cancel_retries" in actions else min(actions)
        kept.append(policy)
    new["log_policies"] = kept
    return dropped


def _actions(policy: Any) -> set[str]:
    """The names of a policy's actions; empty if it has none, or none that can be read."""
    written = policy.get("actions", policy.get("action")) if isinstance(policy, dict) else None
    several = written if isinstance(written, list) else [written]
    names = [one.get("type") if isinstance(one, Mapping) else one for one in several]
    readable = {name for name in names if isinstance(name, str)}
    return readable if len(readable) == len(names) else set()


def _bare_constants(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `{type: const, val: x}` with x, unless x is a mapping, which would then be read as a parameter."""
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
