"""One settings class: what `fit`, `run`, the Traveler, a YAML and argparse can say of training is the same."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

import trek
from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_checks import SET_ELSEWHERE
from trek.train.loggers.base import Logger
from trek.train.settings import ProfileSettings, TrainSettings
from trek.train.trial_host import TrialHost

VALUES: dict[str, Any] = {
    "max_length": {"batches": 3},
    "validation_period": {"batches": 4},
    "validation_lengths": [{"batches": 3}],
    "checkpoint_period": {"epochs": 2},
    "checkpoint_policy": "all",
    "report_period": 7,
    "records_per_epoch": 50,
    "initial_validation": True,
    "strategy": "ddp",
    "strategy_options": {"timeout_s": 5.0},
    "precision": "bf16",
    "accumulate": 2,
    "clip_norm": 1.5,
    "clip_value": 0.5,
    "ema_decay": 0.9,
    "compile": "eager",
    "capture": True,
    "sanity_check": 3,
    "deterministic": True,
    "elastic": "exact",
    "seed": 3,
    "metric": "error",
    "smaller_is_better": True,
    "keep_best": 2,
    "keep_last": 3,
    "keep_every": 10,
    "loggers": ["csv", {"name": "mlflow", "experiment": "mine"}],
    "show_progress": False,
    "profile": {"first": 1, "last": 2, "path": "trace.json"},
    "on_nan": "stop",
    "hang_s": 30.0,
    "on_hang": "stop",
}


def config(**training: Any) -> ExperimentConfig:
    searcher = {"name": "single", "metric": "error", "max_length": 100}
    return ExperimentConfig.parse({"entrypoint": "m:T", "searcher": searcher, "training": training})


def test_every_setting_has_an_example_here() -> None:
    assert set(VALUES) == set(TrainSettings.model_fields)
    defaults = TrainSettings()
    assert all(
        getattr(TrainSettings.of(**{name: value}), name) != getattr(defaults, name) for name, value in VALUES.items()
    )


@pytest.mark.parametrize("name", sorted(set(VALUES) - set(SET_ELSEWHERE)))
def test_a_config_can_say_whatever_a_call_can(name: str) -> None:
    read = config(**{name: VALUES[name]})
    assert read.training == TrainSettings.of(**{name: VALUES[name]})
    again = ExperimentConfig.parse(read.normal_form())
    assert again == read
    assert again.training.model_fields_set == {name}, "what was not written is not in the normal form"


@pytest.mark.parametrize("name", sorted(SET_ELSEWHERE))
def test_what_an_experiment_decides_elsewhere_is_refused_with_the_place(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'training.{name}' is set by {SET_ELSEWHERE[name]}"):
        config(**{name: VALUES[name]})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ({"precision": "bf16"}, "precision"),
        ({"strategy": "ddp"}, "strategy"),
        ({"scheduling_unit": 7}, "report_period"),
        ({"min_validation_period": {"batches": 4}}, "validation_period"),
        ({"min_checkpoint_period": {"epochs": 2}}, "checkpoint_period"),
        ({"records_per_epoch": 50}, "records_per_epoch"),
        ({"perform_initial_validation": True}, "initial_validation"),
        ({"optimizations": {"aggregation_frequency": 2}}, "accumulate"),
        ({"optimizations": {"clip_norm": 1.5}}, "clip_norm"),
    ],
)
def test_other_places_of_a_setting_mean_the_same(written: dict[str, Any], name: str) -> None:
    base = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "error", "max_length": 100}}
    assert ExperimentConfig.parse({**base, **written}).training == config(**{name: VALUES[name]}).training
    both = {**base, **written, "training": {name: VALUES[name]}}
    assert ExperimentConfig.parse(both).training == config(**{name: VALUES[name]}).training


def test_two_places_that_disagree_are_refused() -> None:
    base = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "error", "max_length": 100}}
    with pytest.raises(ConfigError, match="'precision' is 'bf16': it cannot be read, or conflicts with a newer"):
        ExperimentConfig.parse({**base, "precision": "bf16", "training": {"precision": "fp16"}})


def test_profiling_of_other_platforms_becomes_a_trace() -> None:
    base = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "error", "max_length": 100}}
    written = {"profiling": {"enabled": True, "begin_on_batch": 5, "end_after_batch": 8}}
    read = ExperimentConfig.parse({**base, **written})
    assert read.training.profile == ProfileSettings(5, 8)
    assert read.warnings() == []
    assert ExperimentConfig.parse({**base, "profiling": {"enabled": False}}).training.profile is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"accumulate": 2.5}, "accumulate must be a valid integer, got 2.5"),
        ({"accumulate": True}, "accumulate must be a valid integer, got True"),
        ({"clip_norm": -1}, "clip_norm must be greater than 0, got -1"),
        ({"report_period": 0}, "report_period must be greater than or equal to 1, got 0"),
        ({"validation_period": 5}, r"validation_period must be trek.batches\(n\), .* got 5"),
        ({"strategy": "magic"}, "strategy 'magic' does not exist. Use one of: ddp, fsdp, ps, solo"),
        ({"capture": "yes"}, "capture must be a valid boolean, got 'yes'"),
        ({"profile": {"first": 3, "last": 2}}, "1 <= first <= last, got 3 to 2"),
        ({"presicion": "bf16"}, "unknown setting 'presicion'. Did you mean 'precision'"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainSettings.of(**given)


def test_the_faces_take_settings_by_name_and_nothing_twice() -> None:
    """A setting that a face spells out itself has the default of the class."""
    defaults = TrainSettings()
    for face in (trek.fit, trek.run, trek.Traveler.__init__):
        for parameter in inspect.signature(face).parameters.values():
            spelled = parameter.name in TrainSettings.model_fields and parameter.name not in ("max_length", "loggers")
            if spelled:
                assert parameter.default == getattr(defaults, parameter.name), f"{face.__qualname__}: {parameter}"


def test_argument_groups_are_made_from_the_settings() -> None:
    parser = trek.arguments.add_run_args(trek.arguments.add_ddp_args(trek.arguments.add_learn_args(ArgumentParser())))
    words = ["--precision", "bf16", "--accumulate", "3", "--clip_value", "0.5", "--ema_decay", "0.9", "--deterministic"]
    made = trek.arguments.settings(parser.parse_args(words))
    assert (made["precision"], made["accumulate"], made["clip_value"], made["ema_decay"]) == ("bf16", 3, 0.5, 0.9)
    assert made["deterministic"] is True
    known = set(TrainSettings.model_fields) | {"workers", "name", "resume"}
    assert set(made) <= known
    TrainSettings.of(**{name: value for name, value in made.items() if name in TrainSettings.model_fields})


def test_a_host_decides_what_is_its_own(tmp_path: Path) -> None:
    host = TrialHost(
        {"max_length": trek.batches(7), "seed": 3},
        folder=tmp_path,
        checkpoint_dir=tmp_path,
        owner="me",
        resume="latest",
        loggers=[],
    )
    own = TrainSettings.of(max_length=trek.epochs(2), precision="bf16", seed=1)
    assert host.apply_to(own) == TrainSettings.of(max_length=trek.batches(7), precision="bf16", seed=3)


def test_loggers_are_objects_or_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from trek.testing.trials import PointsTrial

    class Counting(Logger):
        rows = 0

        def log_metrics(self, row: Any) -> None:
            Counting.rows += 1

    monkeypatch.setenv("TREK_HOME", str(tmp_path))
    hparams = {"global_batch_size": 16}
    result = trek.fit(
        PointsTrial, hparams=hparams, max_length=trek.epochs(1), loggers=[Counting(), "csv"], show_progress=False
    )
    assert Counting.rows > 0
    assert (result.path / "training.csv").exists()
    for wrong, words in (("csv", "must be a list"), ([3], "got int"), (["wandbb"], "logger 'wandbb' does not exist")):
        with pytest.raises(ConfigError, match=words):
            trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(1), loggers=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "training",
            {"strategy": "magic"},
            "config: strategy 'magic' does not exist. Use one of: ddp, fsdp, ps, solo.",
        ),
        ("engine", "mars", "config: engine 'mars' does not exist. Use one of: local, ray."),
        ("training", 3, "config: 'training' is 3: must be a mapping of keys to values."),
        ("training", {"profile": "x"}, "config: 'training.profile' is 'x': must be a mapping of keys to values."),
    ],
)
def test_an_invalid_key_of_a_config_is_one_sentence(key: str, value: Any, words: str) -> None:
    base = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "error", "max_length": 100}}
    with pytest.raises(ConfigError) as refused:
        ExperimentConfig.parse({**base, key: value})
    assert str(refused.value) == words
