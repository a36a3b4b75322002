"""The JSON Schema of the config, for editors: every key, including short forms."""

from __future__ import annotations

from typing import Any

from trek.experiments.config import ExperimentConfig
from trek.experiments.config_checks import SET_ELSEWHERE
from trek.experiments.config_ignored import IGNORED
from trek.experiments.config_spelling import TRAINING
from trek.train.settings import LENGTH_SCHEMA


def config_schema() -> dict[str, Any]:
    """A schema for completion and checks in editors; Trek itself also reads older spellings."""
    schema = ExperimentConfig.model_json_schema()
    length = schema["$defs"]["LengthSetting"]
    number = {"type": "integer", "minimum": 1, "description": "Batches."}
    schema["$defs"]["LengthSetting"] = {"title": length.pop("title"), "anyOf": [number, length]}
    training = schema["$defs"]["TrainSettings"]["properties"]
    for name in SET_ELSEWHERE:
        training.pop(name)
    for setting in training.values():
        if LENGTH_SCHEMA in setting.get("anyOf", []):
            setting["anyOf"].insert(0, number)
    _add_other_places(schema, training)
    _add_ignored(schema)
    schema["properties"]["entrypoint"]["description"] = "module:Class of a Trial, or a command: a line, or its words."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Trek experiment"}


def _add_ignored(schema: dict[str, Any]) -> None:
    """Add the keys of other platforms that have no effect, as deprecated ones."""
    for (*sections, key), remedy in IGNORED.items():
        if sections != ["searcher"]:  # a block for each searcher
            inner = schema["$defs"][_title(sections[0])] if sections else schema
            description = f"No effect here: {remedy}." if remedy else "No effect here."
            inner.setdefault("properties", {})[key] = {"deprecated": True, "description": description}


def _title(section: str) -> str:
    return section.title().replace("_", "")


def _add_other_places(schema: dict[str, Any], training: dict[str, Any]) -> None:
    """Add the keys under which other platforms have settings of `training`."""
    for (*sections, key), name in TRAINING.items():
        inner = schema["$defs"][_title(sections[0])] if sections else schema
        inner.setdefault("properties", {})[key] = {**training[name], "description": f"The same as training.{name}."}
