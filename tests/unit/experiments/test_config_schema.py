"""The JSON Schema that editors read: current, and in agreement with what Trek reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from trek.experiments.config_schema import config_schema

ROOT = Path(__file__).resolve().parents[3]
BASE: dict[str, Any] = {
    "entrypoint": "m:T",
    "searcher": {"name": "single", "metric": "e", "max_length": {"epochs": 2}},
}


def test_the_published_schema_is_the_current_one() -> None:
    published = json.loads((ROOT / "docs" / "experiment.schema.json").read_text())
    assert published == config_schema(), "run `trek experiment schema > docs/experiment.schema.json`"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"entrypoint": ["python", "train.py"]},
        {"min_validation_period": 5},
        {"resources": {"slots_per_trial": {"min": 1, "max": 4}}},
        {"searcher": {"name": "random", "metric": "e", "max_length": 7, "max_trials": 2}},
    ],
)
def test_what_trek_reads_an_editor_accepts(changes: dict[str, Any]) -> None:
    jsonschema.validate({**BASE, **changes}, config_schema())


@pytest.mark.parametrize(
    "changes",
    [
        {"max_restart": 1},
        {"entrypoint": 3},
        {"resources": {"slots_per_trial": {"most": 2}}},
        {"searcher": {"name": "single"}},
    ],
)
def test_what_trek_refuses_an_editor_marks(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**BASE, **changes}, config_schema())


def test_the_example_of_a_command_is_accepted() -> None:
    example = yaml.safe_load((ROOT / "examples" / "quik" / "search.yaml").read_text())
    jsonschema.validate(example, config_schema())
