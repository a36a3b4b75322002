"""The config: accepted spellings, the normal form, and errors that say where and what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import ConfigError, InputError
from trek.experiments.config import ExperimentConfig

TUTORIAL = """\
description: mnist_pytorch_const
hyperparameters:
    learning_rate: 0.001
    dropout: 0.5
    global_batch_size: 64
    n_filters1: 40
    n_filters2: 40
searcher:
    name: single
    metric: validation_error
    max_steps: 20
    smaller_is_better: true
entrypoint: model_def:MNistTrial
"""
_SINGLE = "    name: single\n    metric: validation_error\n    max_steps: 20"


def parse(text: str, **kwargs: Any) -> ExperimentConfig:
    return ExperimentConfig.parse_text(text, name="const.yaml", **kwargs)


DERIVED = TUTORIAL.replace("    smaller_is_better: true\n", "")


@pytest.mark.parametrize(
    ("metric", "is_smaller_better", "warning"),
    [
        ("accuracy", False, "the largest accuracy is best by its name. Set searcher.smaller_is_better to choose."),
        ("validation_loss", True, None),
        (
            "m",
            True,
            "the smallest m is best by default: its name does not say it. Set searcher.smaller_is_better to choose.",
        ),
    ],
)
def test_the_direction_follows_from_the_metrics_name_and_is_reported(
    metric: str, is_smaller_better: bool, warning: str | None
) -> None:
    config = parse(DERIVED.replace("validation_error", metric))
    assert config.searcher.smaller_is_better is is_smaller_better
    assert config.normal_form()["searcher"]["smaller_is_better"] is is_smaller_better
    assert config.warnings() == ([warning] if warning else [])
    assert ExperimentConfig.parse(config.sent_form()).warnings() == config.warnings()


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("metric", ["accuracy", "validation_loss", "m"])
def test_a_direction_that_is_set_wins_over_the_name(metric: str, chosen: bool) -> None:
    text = TUTORIAL.replace("validation_error", metric).replace("better: true", f"better: {str(chosen).lower()}")
    config = parse(text)
    assert config.searcher.smaller_is_better is chosen
    assert config.sent_form()["searcher"]["smaller_is_better"] is chosen
    assert config.warnings() == []


def test_a_metric_that_is_no_text_is_one_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(DERIVED.replace("validation_error", "[a]"))
    assert str(caught.value) == "const.yaml:10: 'searcher.metric' is ['a']: must be a valid string."


def test_the_tutorials_config_is_accepted_as_it_stands() -> None:
    config = parse(TUTORIAL)
    assert config.name == "mnist_pytorch_const"
    assert config.hyperparameters["n_filters1"] == 40
    assert config.searcher.max_length.model_dump() == {"batches": 2000}
    assert config.entrypoint == "model_def:MNistTrial"


def test_the_normal_form_reads_back_as_the_same_config() -> None:
    config = parse(TUTORIAL)
    assert ExperimentConfig.parse(config.normal_form()) == config


@pytest.mark.parametrize(
    "spelling",
    ["max_steps: 20", "max_length: {batches: 2000}", "max_length: 2000", "max_time: 2000", "max_batches: 2000"],
)
def test_old_and_new_spellings_of_a_length_have_one_normal_form(spelling: str) -> None:
    config = parse(TUTORIAL.replace("max_steps: 20", spelling))
    assert config.normal_form() == parse(TUTORIAL).normal_form()


def test_steps_count_in_the_scheduling_unit() -> None:
    assert parse(TUTORIAL + "batches_per_step: 10\n").searcher.max_length.count == 200


def test_a_bare_period_counts_steps_where_the_searcher_does_and_batches_elsewhere() -> None:
    assert parse(TUTORIAL + "min_validation_period: 2\n").training.validation_period.count == 200  # type: ignore[union-attr]
    later = TUTORIAL.replace("max_steps: 20", "max_length: 2000") + "min_validation_period: 2\n"
    assert parse(later).training.validation_period.count == 2  # type: ignore[union-attr]


def test_a_constant_is_the_same_bare_or_spelt_out() -> None:
    spelt = TUTORIAL.replace("dropout: 0.5", "dropout: {type: const, val: 0.5}")
    assert parse(spelt).normal_form() == parse(TUTORIAL).normal_form()


def test_scientific_notation_without_a_dot_is_a_number() -> None:
    assert parse(TUTORIAL.replace("0.001", "1e-3")).hyperparameters["learning_rate"] == 0.001


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("description", "descripion", 1, "Did you mean 'description'?"),
        ("max_steps", "max_step", 11, "Did you mean 'max_steps'?"),
        ("name: single", "name: singel", 9, "Did you mean 'single'?"),
        ("    metric: validation_error\n", "", 8, "'searcher.metric' is missing"),
        (_SINGLE, "    name: asha\n    metric: e", 8, "'searcher.max_length' is missing"),
        ("global_batch_size: 64", "global_batch_size: 0", 5, "at least 1"),
        ("global_batch_size: 64", "global_batch_size: many", 5, "'many'"),
        ("dropout: 0.5", "dropout: {type: double, minval: 0.2}", 4, "'hyperparameters.dropout.maxval' is missing"),
        ("dropout: 0.5", "dropout: {type: double, minval: 2, maxval: 1}", 4, "above maxval"),
        ("dropout: 0.5", "dropout: {type: log, minval: 0, maxval: 999}", 4, "exponents"),
        ("dropout: 0.5", "dropout: [1, 2", 5, "invalid YAML"),
        ("dropout: 0.5", "learning_rate: 0.5", 4, "given twice"),
        ("model_def:MNistTrial", "model_def.py", 13, "module:Class"),
        ("max_steps: 20", "max_length: {batches: 1, epochs: 2}", 11, "one of {batches: n}"),
        ("max_steps: 20", "max_length: 5, max_steps: 20", 11, "invalid YAML"),
        ("max_steps: 20", "max_length: 5\n    max_steps: 20", 12, "newer spelling"),
        ("max_steps: 20", "max_steps: many", 11, "'searcher.max_steps' is 'many': it cannot be read"),
        ("max_steps: 20", "max_length: {epoch: 2}", 11, "Did you mean 'epochs'?"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_remedy(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(TUTORIAL.replace(old, new))
    assert str(caught.value).startswith(f"const.yaml:{line}: ")
    assert words in str(caught.value)


def test_of_several_mistakes_the_first_in_the_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"const\.yaml:1: 'descrption' is not a known key.*\(1 more"):
        parse(TUTORIAL.replace("description", "descrption").replace("entrypoint:", "resorces: {}\nentrypoint:"))


def test_a_key_of_another_searcher_is_met_with_those_of_this_one() -> None:
    with pytest.raises(ConfigError, match=r"max_trials' is a setting of other searchers; this one has: .*max_length"):
        parse(TUTORIAL.replace("smaller_is_better: true", "max_trials: 3"))


def test_a_batch_smaller_than_the_slots_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"const\.yaml:5: global_batch_size 64 is smaller than the 65 slots"):
        parse(TUTORIAL + "resources: {slots_per_trial: 65}\n")


def test_a_batch_size_that_is_searched_is_checked_at_its_smallest() -> None:
    searched = TUTORIAL.replace("global_batch_size: 64", "global_batch_size: {type: int, minval: 1, maxval: 8}")
    with pytest.raises(ConfigError, match="global_batch_size 1 is smaller than the 2 slots"):
        parse(searched + "resources: {slots_per_trial: 2}\n")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("strategy: solo\nresources: {slots_per_trial: 2}\n", "Use strategy 'ddp'"),
        ("strategy: fsdp\n", "at least 2 processes"),
        ("resources: {slots_per_trial: 4, max_slots: 2}\n", "no trial can start"),
        ("resources: {slots_per_trial: {min: 3, max: 2}}\n", "min 3 above max 2"),
        ("resources: {slots_per_trial: {min: 1, max: 65}}\n", "smaller than the 65 slots"),
        ("resources: {slots_per_trial: {min: 1, max: 4}, max_slots: 2}\n", "lower slots_per_trial.max"),
        ("strategy: fsdp\nresources: {slots_per_trial: {min: 2, max: 4}}\n", "cannot train with workers that come"),
        (
            "training: {strategy_options: {backend: nccl}}\nresources: {slots_per_trial: {min: 2, max: 4}}\n",
            "cannot use the communication backend 'nccl'",
        ),
        ("resources: {slots_per_trial: {min: 0, max: 4}}\n", "resources.slots_per_trial.min' is 0: must be greater"),
        ("resources: {slots_per_trial: {mix: 4}}\n", "resources.slots_per_trial.mix' is not a known key"),
        ("resources: {slots_per_trial: many}\n", "resources.slots_per_trial' is 'many': must be a valid integer"),
        ("checkpoint_storage: {type: s3}\n", "needs a 'url'"),
        ("log_policies: [{pattern: '('}]\n", "not a valid regular expression"),
        ("log_policies: [{pattern: '(?=a)b'}]\n", "Lookaround, backreferences"),
        ("log_policies: [{pattern: '" + "a" * 1001 + "'}]\n", "at most 1000 are supported"),
        ("log_policies: [" + "{pattern: a}," * 33 + "]\n", "at most 32 log policies"),
    ],
)
def test_rules_between_keys_are_checked(extra: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        parse(TUTORIAL + extra)


def test_slots_are_a_number_or_a_range() -> None:
    fixed = parse(TUTORIAL + "resources: {slots_per_trial: 2}\n")
    assert (fixed.resources.slots_per_trial, fixed.resources.elastic) == (2, None)
    elastic = parse(TUTORIAL + "resources: {slots_per_trial: {max: 4}}\n")
    assert (elastic.resources.least_slots, elastic.resources.most_slots) == (1, 4)
    assert elastic.normal_form()["resources"]["slots_per_trial"] == {"min": 1, "max": 4}
    assert ExperimentConfig.parse(elastic.normal_form()) == elastic


def test_values_come_from_the_environment_where_asked() -> None:
    text = TUTORIAL.replace("0.001", "${LR}").replace("0.5", "${DROPOUT:-0.25}")
    config = parse(text, environ={"LR": "0.1"})
    assert config.hyperparameters["learning_rate"] == 0.1
    assert config.hyperparameters["dropout"] == 0.25


def test_a_missing_environment_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"const\.yaml:3: the environment variable LR is not set"):
        parse(TUTORIAL.replace("0.001", "${LR}"), environ={})


def test_overrides_replace_values_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "const.yaml").write_text(TUTORIAL)
    overrides = ["searcher.max_steps=1", "hyperparameters.extra.depth=[1, 2]", "name=short"]
    config = ExperimentConfig.read(tmp_path / "const.yaml", overrides=overrides)
    assert config.searcher.max_length.count == 100
    assert config.hyperparameters["extra"] == {"depth": [1, 2]}
    assert config.name == "short"


def test_an_override_without_a_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "const.yaml").write_text(TUTORIAL)
    with pytest.raises(InputError, match="key=value"):
        ExperimentConfig.read(tmp_path / "const.yaml", overrides=["searcher"])


def test_a_missing_file_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        ExperimentConfig.read(tmp_path / "none.yaml")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_KEYS = sorted(ExperimentConfig.model_fields)


@given(changes=st.dictionaries(st.sampled_from(_KEYS), _JSON, min_size=1, max_size=3))
def test_nonsense_in_any_key_is_a_config_error_or_a_config(changes: dict[str, Any]) -> None:
    raw = {**parse(TUTORIAL).normal_form(), **changes}
    try:
        config = ExperimentConfig.parse(raw)
    except ConfigError:
        return
    assert ExperimentConfig.parse(config.normal_form()) == config


def test_a_misspelled_type_of_a_hyperparameter_names_its_line() -> None:
    # `type: integer` became a constant mapping, the same for every trial.
    text = """
entrypoint: model_def:T
hyperparameters:
  width: {type: integer, minval: 8, maxval: 64}
searcher: {name: random, metric: m, max_trials: 4, max_length: {batches: 8}}
"""
    with pytest.raises(
        ConfigError, match=r"^config:4: hyperparameters\.width: 'integer' is not a type .* mean 'int'\?"
    ):
        ExperimentConfig.parse_text(text)


@pytest.mark.parametrize(
    ("searcher", "reason"),
    [
        ({"name": "hyperband", "max_length": {"batches": 10**12}}, "has more than 1000000 trials"),
        ({"name": "random", "max_trials": 10**6, "max_length": 1, "max_concurrent_trials": 0}, "1000000 trials at the"),
        (
            {"name": "asha", "max_trials": 10**6, "max_length": 9, "max_concurrent_trials": 50_000},
            "50000 trials at the",
        ),
        ({"name": "hyperband", "max_length": 10**5, "max_concurrent_trials": 0}, "trials at the same time"),
    ],
)
def test_a_search_that_would_fill_the_database_at_once_is_refused(searcher: dict[str, Any], reason: str) -> None:
    # All its first trials were stored in one transaction, for which everybody else waited.
    with pytest.raises(ConfigError, match=reason):
        ExperimentConfig.parse({"entrypoint": "a:B", "searcher": {"metric": "m", **searcher}})


def test_a_long_search_with_few_trials_at_a_time_is_accepted() -> None:
    searcher = {"name": "random", "metric": "m", "max_trials": 10**6, "max_length": 1}
    assert ExperimentConfig.parse({"entrypoint": "a:B", "searcher": searcher}).searcher.name == "random"
