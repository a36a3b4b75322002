"""The JSON Schema of the config, for editors: every key, including short forms."""

from __future__ import annotations

from typing import Any

from trek.experiments.config import ExperimentConfig
from trek.experiments.config_checks import SET_ELSEWHERE
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
    schema["properties"]["entrypoint"]["description"] = "module:Class of a Trial, or a command: a line, or its words."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Trek experiment"}


def _add_other_places(schema: dict[str, Any], training: dict[str, Any]) -> None:
    """Add the keys under which other platforms have settings of `training`."""
    for (*sections, key), name in TRAINING.items():
        inner = schema["$defs"][sections[0].capitalize()] if sections else schema
        inner["properties"][key] = {**training[name], "description": f"The same as training.{name}."}
