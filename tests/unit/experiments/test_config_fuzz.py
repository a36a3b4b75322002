"""Configs that were damaged at random: either they are read, or one ConfigError says what is wrong."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import yaml

from trek.errors import TrekError
from trek.experiments.config import ExperimentConfig
from trek.search import preview

BASE: dict[str, Any] = {
    "name": "fuzz",
    "labels": ["a"],
    "data": {"url": "x"},
    "entrypoint": "model_def:T",
    "hyperparameters": {
        "global_batch_size": 32,
        "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
        "units": {"type": "int", "minval": 1, "maxval": 8, "count": 3},
        "net": {"kind": {"type": "categorical", "vals": ["a", "b"]}},
        "depth": {"type": "double", "minval": 0, "maxval": 1, "when": {"net.kind": "a"}},
    },
    "searcher": {"name": "adaptive_asha", "metric": "e", "max_length": {"batches": 64}, "max_trials": 8, "divisor": 4},
    "resources": {"slots_per_trial": 2, "max_slots": 4, "weight": 1.0, "priority": 50},
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/x", "storage_path": "y", "save_trial_best": 1},
    "min_validation_period": {"batches": 10},
    "scheduling_unit": 100,
    "optimizations": {"aggregation_frequency": 1, "mixed_precision": "O1"},
    "reproducibility": {"experiment_seed": 3},
    "environment": {"environment_variables": ["A=1"]},
    "log_policies": [{"pattern": "x", "action": {"type": "cancel_retries"}}],
    "retention_policy": {"log_retention_days": 3},
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**40, 10**400, -0.0, 0.5, 1e308, float("inf"), float("nan"), "", "x", "0", "const",
    "single", "grid", "random", "pbt", "hyperband", "asha", "é\u0000", "${HOME}", "a:b", "../..", [], [[]], [None], {},
    {"type": "const"}, {"type": "int"}, {"type": "log", "minval": -400, "maxval": 400}, {1: 2}, {"batches": 0},
    {"": {}}, {"epochs": 1}, ["A"], [1, 2], {"type": "categorical", "vals": []}, "(", b"bytes", -(2**63) - 1,
]  # fmt: skip


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, child in inner for place in _places(child, (*at, key)))]


def _mutated(rng: random.Random) -> dict[str, Any]:
    config = copy.deepcopy(BASE)
    for _ in range(rng.randint(1, 3)):
        place = rng.choice(_places(config)[1:])
        holder: Any = config
        for key in place[:-1]:
            holder = holder[key]
        kind = rng.random()
        if kind < 0.6:
            holder[place[-1]] = copy.deepcopy(rng.choice(ODD))
        elif kind < 0.8:
            del holder[place[-1]]
        elif isinstance(holder, dict):
            holder[rng.choice(["max_steps", "max_time", "path", "url", "bucket", "typo", "minval", "promote", 7])] = (
                copy.deepcopy(rng.choice(ODD))
            )
    return config


def _read(config: dict[str, Any], *, as_text: bool) -> None:
    try:
        if as_text:
            text = yaml.safe_dump(config, allow_unicode=True)
            parsed = ExperimentConfig.parse_text(text, environ={"HOME": "/"})
        else:
            parsed = ExperimentConfig.parse(config)
        assert ExperimentConfig.parse(parsed.normal_form()).normal_form() == parsed.normal_form()
        if getattr(parsed.searcher, "max_trials", 0) < 10_000:
            preview(parsed)
    except TrekError:
        return  # one sentence, as it should be; anything else is a traceback


@pytest.mark.parametrize("as_text", [False, True], ids=["mapping", "yaml"])
def test_damaged_configs_never_give_a_traceback(as_text: bool) -> None:
    rng = random.Random(int(as_text))
    for _ in range(300):
        _read(_mutated(rng), as_text=as_text)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_ten_thousand_damaged_configs_never_give_a_traceback() -> None:
    rng = random.Random(99)
    for count in range(10_000):
        _read(_mutated(rng), as_text=count % 2 == 0)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_ten_thousand_damaged_texts_never_give_a_traceback() -> None:
    rng = random.Random(5)
    text = yaml.safe_dump(BASE)
    for _ in range(10_000):
        letters = list(text)
        for _ in range(rng.randint(1, 8)):
            letters[rng.randrange(len(letters))] = rng.choice("{}[]:-\n \t'\"&*!%@`|>#,$0aé\u0000")
        try:
            ExperimentConfig.parse_text("".join(letters), environ={})
        except TrekError:
            continue
