"""Every number of a space and of a searcher: what is none, or has no end, is one error that names its key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from trek.errors import ConfigError
from trek.experiments.config import ExperimentConfig
from trek.search import preview, simulate
from trek.search.searcher_registry import settings_types
from trek.search.space import Double, Int, Log

NO_NUMBERS = [math.nan, math.inf, -math.inf, True, "text", "nan", "inf", [1], 10**40, 1e400]
PARAMETERS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "double": (Double, {"minval": 0.5, "maxval": 1, "count": 2}),
    "int": (Int, {"minval": 1, "maxval": 2, "count": 2}),
    "log": (Log, {"minval": -2, "maxval": -1, "count": 2, "base": 10}),
}
SEARCHERS: dict[str, dict[str, Any]] = {
    "single": {"max_length": {"batches": 3}},
    "random": {"max_length": {"records": 3}, "max_trials": 2, "max_concurrent_trials": 1},
    "grid": {"max_length": {"epochs": 3}, "max_concurrent_trials": 1},
    "asha": {"max_length": 9, "max_trials": 2, "num_rungs": 2, "divisor": 3, "max_concurrent_trials": 1},
    "adaptive_asha": {
        "max_length": 9, "max_trials": 2, "max_rungs": 2, "divisor": 3, "max_concurrent_trials": 1,
        "bracket_rungs": [1],
    },
    "hyperband": {"max_length": 9, "divisor": 3, "max_concurrent_trials": 1},
    "pbt": {
        "population_size": 2, "num_rounds": 2, "length_per_round": 3,
        "replace_function": {"truncate_fraction": 0.2},
        "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.2},
    },
    "optuna": {"max_length": 9, "max_trials": 2, "max_concurrent_trials": 1},
}  # fmt: skip


def config(parameter: dict[str, Any] | None = None, searcher: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": "x",
        "entrypoint": "a:B",
        "hyperparameters": {"global_batch_size": 8, "p": parameter or {"type": "int", "minval": 1, "maxval": 2}},
        "searcher": {"metric": "loss", **(searcher or {"name": "grid", "max_length": 1})},
    }


def changed(settings: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    inner = changed(settings[path[0]], path[1:], value) if path[1:] else value
    return {**settings, path[0]: inner}


def numbers(settings: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in settings.items():
        yield from numbers(value, (*at, key)) if isinstance(value, dict) else [(*at, key)]


def assert_refused(made: dict[str, Any], key: str) -> None:
    for check in (ExperimentConfig.parse, preview, lambda raw: simulate(raw, lambda hparams, length: 1.0)):
        with pytest.raises(ConfigError) as caught:
            check(made)
        assert key in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, (_, one) in PARAMETERS.items() for key in one])
def test_a_bound_that_is_no_number_is_refused(kind: str, key: str, value: Any) -> None:
    if value == 10**40 and kind != "int" and key != "count":
        value = 10**400  # what no float can hold
    assert_refused(config({"type": kind, **PARAMETERS[kind][1], key: value}), "hyperparameters.p")


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0.9999999999, -1], ids=repr)
@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, settings in SEARCHERS.items() for path in numbers(settings)], ids=str
)
def test_a_setting_that_is_no_number_is_refused(name: str, path: tuple[str, ...], value: Any) -> None:
    if value == [1] and path == ("bracket_rungs",):
        value = [True]
    if value == 0.9999999999 and name == "pbt":
        return  # a share of a population
    if value == 10**40 and path[-1] == "max_concurrent_trials":
        value = 2**64
    assert_refused(config(searcher={"name": name, **changed(SEARCHERS[name], path, value)}), path[0])


def test_all_searchers_and_all_of_their_numbers_are_covered() -> None:
    assert set(SEARCHERS) == set(settings_types())
    for name, kind in settings_types().items():
        fields = {key for key in kind.model_fields if kind._is_numeric(key)}
        assert fields <= set(SEARCHERS[name])
    for kind, (model, settings) in PARAMETERS.items():
        assert {key for key in model.model_fields if model._is_numeric(key)} == set(settings), kind


@pytest.mark.parametrize(
    ("parameter", "searcher", "message"),
    [
        ({"type": "double", "minval": -1e308, "maxval": 1e308}, None, "too far apart"),
        ({"type": "log", "minval": -400, "maxval": -1}, None, "not a finite number above 0"),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 10**9}, None, "'hyperparameters.p.count' is 1000000000"),
        (None, {"name": "hyperband", "max_length": 10, "divisor": 1.000001}, "'searcher.divisor' is 1.000001"),
        (None, {"name": "pbt", "population_size": 2, "num_rounds": 10**6, "length_per_round": 10**12}, "longer than"),
    ],
    ids=["width", "underflow", "count", "divisor", "rounds"],
)
def test_numbers_that_lead_nowhere_are_refused(parameter: Any, searcher: Any, message: str) -> None:
    made = config(parameter, searcher)
    for check in (ExperimentConfig.parse, preview):
        with pytest.raises(ConfigError, match=message):
            check(made)


def test_a_number_may_be_written_as_text() -> None:
    """YAML 1.1 reads 1e-4 as text."""
    made = config({"type": "double", "minval": "1e-4", "maxval": "1e-1"}, {"name": "random", **SEARCHERS["random"]})
    drawn = [trial.hparams["p"] for trial in simulate(made, lambda hparams, length: 1.0).trials]
    assert all(1e-4 <= value <= 1e-1 for value in drawn)
