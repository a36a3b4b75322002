"""Templates under configs, and single keys changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trek.errors import ConfigError, InputError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import merge_configs, with_changes
from trek.experiments.provenance import provenance


def test_what_is_on_top_wins_and_mappings_are_merged() -> None:
    base = {"resources": {"slots_per_trial": 2, "weight": 2}, "labels": ["a"], "name": "base"}
    top = {"resources": {"weight": 3}, "labels": ["b"]}
    assert merge_configs(base, top) == {
        "resources": {"slots_per_trial": 2, "weight": 3},
        "labels": ["b"],
        "name": "base",
    }


def test_a_hyperparameter_replaces_another_as_a_whole() -> None:
    base = {"hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 2}}}
    top = {"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}}}
    assert merge_configs(base, top) == top


def test_a_config_is_read_over_a_template(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("entrypoint: a:B\nsearcher: {name: single, max_length: 5}\n")
    config = ExperimentConfig.read(tmp_path / "c.yaml", template={"searcher": {"metric": "loss"}, "max_restarts": 1})
    assert (config.searcher.metric, config.max_restarts) == ("loss", 1)


def test_keys_are_changed_by_their_dotted_names() -> None:
    before = {"a": {"b": 1}, "c": 2}
    assert with_changes(before, {"a.b": 3, "a.x.y": 4, "c": [5]}) == {"a": {"b": 3, "x": {"y": 4}}, "c": [5]}
    assert before == {"a": {"b": 1}, "c": 2}


def test_a_length_takes_the_place_of_the_same_length_in_another_spelling() -> None:
    new, old = {"searcher": {"max_length": {"batches": 5}}}, {"searcher": {"max_steps": 5}}
    assert with_changes(new, {"searcher.max_steps": 3}) == {"searcher": {"max_steps": 3}}
    assert with_changes(old, {"searcher.max_length": 3}) == {"searcher": {"max_length": 3}}
    assert with_changes(old, {"searcher.max_length.epochs": 3}) == {"searcher": {"max_length": {"epochs": 3}}}


OF_LOSS = {"searcher": {"name": "single", "metric": "loss", "smaller_is_better": True}}


@pytest.mark.parametrize(
    ("top", "is_kept"),
    [
        ({"metric": "accuracy"}, False),
        ({"metric": "loss"}, True),
        ({"divisor": 3}, True),
        ({"metric": "accuracy", "smaller_is_better": True}, True),
        ({"smaller_is_better": True, "metric": "accuracy"}, True),
    ],
    ids=str,
)
def test_another_metric_does_not_take_over_the_direction_of_the_one_before(
    top: dict[str, object], is_kept: bool, tmp_path: Path
) -> None:
    changes = {f"searcher.{key}": value for key, value in top.items()}
    for merged in (merge_configs(OF_LOSS, {"searcher": top}), with_changes(OF_LOSS, changes)):
        assert merged["searcher"] == {k: v for k, v in {**OF_LOSS["searcher"], **top}.items() if is_kept or k[0] != "s"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"entrypoint": "a:B", **OF_LOSS}))
    settings = [f"{key}={str(value).lower()}" for key, value in changes.items() if key != "searcher.divisor"]
    read = ExperimentConfig.read(tmp_path / "c.yaml", overrides=settings)
    assert read.searcher.smaller_is_better is is_kept


def test_a_key_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="invalid key"):
        with_changes({}, {"a..b": 1})


def test_what_ran_is_recorded(tmp_path: Path) -> None:
    found = provenance(tmp_path)
    assert found["packages"]["torch"]
    assert found["git"] is None
    assert (provenance(Path(__file__).parent)["git"] or {"commit": "0" * 40})["commit"].isalnum()


def test_a_length_in_another_unit_takes_the_place_of_the_first() -> None:
    below = {"searcher": {"name": "single", "max_length": {"epochs": 2}}}
    expected = {"searcher": {"name": "single", "max_length": {"batches": 60}}}
    assert merge_configs(below, {"searcher": {"max_length": {"batches": 60}}}) == expected
    assert with_changes(below, {"searcher.max_length.batches": 60}) == expected
    assert merge_configs(below, {"searcher": {"max_steps": 3}}) == {"searcher": {"name": "single", "max_steps": 3}}


def test_another_searcher_takes_the_place_of_the_first_with_all_its_settings() -> None:
    below = {"searcher": {"name": "asha", "metric": "e", "divisor": 3}}
    assert merge_configs(below, {"searcher": {"name": "single", "metric": "m"}})["searcher"] == {
        "name": "single",
        "metric": "m",
    }
    assert merge_configs(below, {"searcher": {"divisor": 4}})["searcher"] == {
        "name": "asha",
        "metric": "e",
        "divisor": 4,
    }


def test_a_setting_of_training_is_one_setting_in_either_place() -> None:
    base = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
    stored = ExperimentConfig.parse({**base, "precision": "bf16", "optimizations": {"clip_norm": 1.0}}).normal_form()
    changed = ExperimentConfig.parse(with_changes(stored, {"precision": "fp16", "optimizations.clip_norm": 2.0}))
    assert (changed.training.precision, changed.training.clip_norm) == ("fp16", 2.0)
    written = with_changes({**base, "precision": "bf16"}, {"training.precision": "fp16"})
    assert ExperimentConfig.parse(written).training.precision == "fp16"


def test_a_template_and_a_config_may_write_a_setting_in_different_places(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("entrypoint: m:T\nsearcher: {name: single, metric: m, max_length: 1}\nprecision: fp16\n")
    assert ExperimentConfig.read(path, template={"training": {"precision": "bf16"}}).training.precision == "fp16"


def test_an_error_names_the_key_and_the_line_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("entrypoint: m:T\nsearcher: {name: single, metric: m, max_length: 1}\nprecision: fp8\n")
    with pytest.raises(ConfigError, match=r"config.yaml:3: 'precision' is 'fp8'"):
        ExperimentConfig.read(path)
