"""The JSON Schema of the config, for editors: today's spelling of every key, with the short forms people write."""

from __future__ import annotations

from typing import Any

from trek.experiments.config import ExperimentConfig


def config_schema() -> dict[str, Any]:
    """A schema that editors complete and check a config by; Trek itself also reads older spellings."""
    schema = ExperimentConfig.model_json_schema()
    length = schema["$defs"]["LengthSetting"]
    number = {"type": "integer", "minimum": 1, "description": "Batches."}
    schema["$defs"]["LengthSetting"] = {"title": length.pop("title"), "anyOf": [number, length]}
    schema["properties"]["entrypoint"]["description"] = "module:Class of a Trial, or a command: a line, or its words."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Trek experiment"}
