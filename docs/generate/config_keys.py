"""The reference of configs and of training settings as Markdown, from their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter

from trek.experiments.config_ignored import IGNORED
from trek.experiments.config_schema import config_schema
from trek.experiments.config_spelling import TRAINING, respell_config
from trek.search.searcher_settings import OLD_NAMES
from trek.search.space import TYPES, AnyParameter
from trek.train.settings import TrainSettings

Schema = Mapping[str, Any]

OLD_SPELLINGS = [
    *(yaml.safe_dump({"searcher": {"name": name}}) for name in OLD_NAMES),
    "searcher: {max_steps: 20}\nbatches_per_step: 50",
    "searcher: {steps_per_round: 2}\nscheduling_unit: 50",
    "searcher: {max_batches: 500}",
    "searcher: {max_records: 6000}",
    "searcher: {max_epochs: 4}",
    "searcher: {max_time: 4, time_metric: epochs}",
    "optimizations: {mixed_precision: O1}",
    "checkpoint_storage: {type: shared_fs, host_path: /checkpoints, storage_path: runs}",
    "checkpoint_storage: {type: local, container_path: /checkpoints}",
    "checkpoint_storage: {type: s3, bucket: models, prefix: runs}",
    "checkpoint_storage: {type: gcs, bucket: models}",
    "checkpoint_storage: {type: azure, container: models}",
    "profiling: {enabled: true, begin_on_batch: 5, end_after_batch: 9}",
    "environment: {environment_variables: [LEVEL=3]}",
    "resources: {slots: 2}",
    "searcher: {name: sync_halving, num_rungs: 3, target_trial_steps: 10, step_budget: 100}",
    "searcher: {name: adaptive, max_length: {batches: 100}, budget: {batches: 1000}}",
    "searcher: {source_checkpoint_uuid: 4ac3}",
    "searcher: {source_trial_id: 7}",
    "checkpoint_storage: {type: hdfs, hdfs_url: 'http://namenode:50070', hdfs_path: /runs}",
    "log_policies: [{pattern: OOM, actions: [cancel_retries]}]",
    "log_policies: [{pattern: OOM, action: {type: cancel_retries}}]",
    "hyperparameters: {dropout: {type: const, val: 0.5}}",
]
"""Spellings of other platforms and older versions; what they mean is computed."""


def settings_table() -> str:
    """Every setting of training."""
    schema = TrainSettings.model_json_schema()
    return _table(_rows(schema, schema.get("$defs", {})), first="setting")


def config_reference() -> str:
    """Every key of a config: those of the top, then each section, then the searchers and parameters."""
    schema = config_schema()
    defs = schema["$defs"]
    sections = {key: one for key, one in schema["properties"].items() if _section(one, defs) is not None}
    skipped = {*sections, "searcher", "hyperparameters", *(path[0] for path in TRAINING if len(path) == 1)}
    parts = ["## The top level", _table(_rows(schema, defs, skipped=skipped))]
    for key, one in sections.items():
        inner = _section(one, defs)
        assert inner is not None
        moved = {path[1] for path in TRAINING if path[0] == key and len(path) == 2}
        prefix = f"{key}[]" if one.get("type") == "array" else key
        parts += [f"## {key}", one.get("description") or inner["description"]]
        parts += [_table(_rows(inner, defs, prefix=prefix, skipped=moved))]
    parts += ["## searcher", str(schema["properties"]["searcher"]["description"]), *_searchers(schema, defs)]
    parts += ["## hyperparameters", str(schema["properties"]["hyperparameters"]["description"]), *_parameters()]
    return "\n\n".join(parts)


def old_spellings() -> str:
    """Every accepted spelling that is not the one of today, and the one of today."""
    rows = [(f"`{'.'.join(path)}`", f"`training.{name}`") for path, name in TRAINING.items()]
    for text in OLD_SPELLINGS:
        now = respell_config(yaml.safe_load(text))
        rows.append((_inline(yaml.safe_load(text)), _inline(now)))
    return "\n".join(["| may be written | means |", "|---|---|", *(f"| {old} | {new} |" for old, new in rows)])


def ignored_keys() -> str:
    """Every key of other platforms that is accepted and has no effect."""
    rows = (f"| `{'.'.join(path)}` | {remedy} |" for path, remedy in IGNORED.items())
    return "\n".join(["| key | instead |", "|---|---|", *rows])


def _searchers(schema: Schema, defs: Schema) -> Iterator[str]:
    for choice in schema["properties"]["searcher"]["oneOf"]:
        inner = defs[choice["$ref"].rpartition("/")[2]]
        name = inner["properties"]["name"]["const"]
        yield f"### searcher: {name}"
        yield str(inner["description"])
        yield _table(_rows(inner, defs, prefix="searcher", skipped={"name"}))


def _parameters() -> Iterator[str]:
    schema = TypeAdapter(AnyParameter).json_schema()
    defs = schema["$defs"]
    for name in TYPES:
        inner = defs[schema["discriminator"]["mapping"][name].rpartition("/")[2]]
        yield f"### type: {name}"
        yield str(inner["description"])
        yield _table(_rows(inner, defs, skipped={"type"}))


def _rows(
    schema: Schema, defs: Schema, *, prefix: str = "", skipped: Iterable[str] = ()
) -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and meaning of every property, those of nested sections under dotted names."""
    required = schema.get("required", [])
    for name, one in schema.get("properties", {}).items():
        if name in skipped or one.get("deprecated"):
            continue
        key = f"{prefix}.{name}" if prefix else name
        inner = _section(one, defs)
        if inner is not None and inner.get("title") not in _VALUES:
            yield from _rows(inner, defs, prefix=key)
            continue
        default = "required" if name in required else _default(one.get("default"))
        yield f"`{key}`", _type(one, defs), default, str(one.get("description", ""))


_VALUES = ("LengthSetting", "ProfileSettings")
"""Mappings that are one value to people: a row each, not one for every key."""


def _section(one: Schema, defs: Schema) -> Schema | None:
    """The section that a property holds, itself or in a list; None if it holds a plain value."""
    reference = one.get("$ref") or one.get("items", {}).get("$ref")
    found = defs[reference.rpartition("/")[2]] if reference else None
    return found if found is not None and "properties" in found else None


def _type(one: Schema, defs: Schema) -> str:
    if "$ref" in one:
        return _named(one["$ref"].rpartition("/")[2], defs)
    if "anyOf" in one:
        kinds = [_type(part, defs) for part in one["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in one:
        return f"`{one['const']}`"
    if "enum" in one:
        return ", ".join(f"`{value}`" for value in one["enum"])
    if one.get("type") == "array":
        return f"list of {_type(one.get('items', {}), defs)}"
    if {"batches", "records", "epochs"} <= set(one.get("properties", {})):
        return "length"
    return _SCALARS.get(str(one.get("type")), "any value") + _bounds(one)


_SCALARS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "object": "mapping",
}


def _named(name: str, defs: Schema) -> str:
    if name == "LengthSetting":
        return "length"
    inner = defs[name]
    return "mapping of " + ", ".join(f"`{key}`" for key in inner["properties"]) if "properties" in inner else "mapping"


def _bounds(one: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return "".join(f" {sign} {one[key]:,}" for key, sign in signs.items() if key in one and abs(one[key]) < 2**31 - 1)


def _default(value: Any) -> str:
    return "–" if value in (None, "", [], {}) else f"`{json.dumps(value)}`"


def _table(rows: Iterable[tuple[str, str, str, str]], *, first: str = "key") -> str:
    lines = [f"| {first} | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _inline(value: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(value), default_flow_style=True, width=1000, sort_keys=False).strip()
    return f"`{text[1:-1]}`"
