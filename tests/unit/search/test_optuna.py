"""Optuna's samplers behind our interface: pure, seeded, restored exactly, and better than chance."""

from __future__ import annotations

import json
import math
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from trek.errors import InputError
from trek.search import make_searcher, preview, simulate
from trek.search.base import Create, Searcher
from trek.search.simulate import _read
from trek.testing.searchers import SearcherSuite

SPACE: dict[str, Any] = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "units": {"type": "int", "minval": 1, "maxval": 64},
    "net": {
        "kind": {"type": "categorical", "vals": ["mlp", "cnn"]},
        "depth": {"type": "double", "minval": 0, "maxval": 1},
    },
    "kernel": {"type": "int", "minval": 3, "maxval": 5, "when": {"net.kind": "cnn"}},
    "epochs": 3,
}


def config(hyperparameters: Mapping[str, Any] = SPACE, **searcher: Any) -> dict[str, Any]:
    return {"searcher": {"name": "optuna", "max_length": 10, **searcher}, "hyperparameters": hyperparameters}


def searcher_of(made: dict[str, Any], *, seed: int = 0) -> Searcher:
    found, space, _ = _read(made)
    return make_searcher(found, hyperparameters=space, seed=seed)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
class TestOptuna(SearcherSuite):
    """The suite, past the first draws, which are random."""

    @pytest.fixture(autouse=True)
    def _choose(self, sampler: str) -> None:
        self._config = config(sampler=sampler, max_trials=16, max_concurrent_trials=3)

    def make(self) -> Searcher:
        return searcher_of(self._config)


def _trained(searcher: Searcher, count: int) -> list[Create]:
    """One trial after another, judged by its learning rate."""
    made = [action for action in searcher.start() if isinstance(action, Create)]
    while len(made) < count:
        searcher.report(made[-1].key, length=10, metric=abs(math.log10(made[-1].hparams["lr"]) + 2))
        made += [action for action in searcher.reached(made[-1].key) if isinstance(action, Create)]
    return made


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "gp"])
def test_every_sampler_is_seeded_and_goes_on_from_a_snapshot(sampler: str) -> None:
    # The first ten draws of TPE and GP are random; a fit of a Gaussian process takes its time, so there are few.
    made = config({"lr": SPACE["lr"]}, sampler=sampler, max_trials=12, max_concurrent_trials=1)
    plain = _trained(searcher_of(made), 12)
    assert plain[:2] != _trained(searcher_of(made, seed=1), 2)
    first, second = searcher_of(made), searcher_of(made)
    half = _trained(first, 11)
    assert half == plain[:11]
    second.restore(json.loads(json.dumps(first.snapshot(), allow_nan=False)))
    second.report(10, length=10, metric=abs(math.log10(half[-1].hparams["lr"]) + 2))
    assert second.reached(10) == [plain[11]]


def test_a_snapshot_of_cmaes_holds_no_pickle_and_loads_none() -> None:
    made = config({"lr": SPACE["lr"]}, sampler="cmaes", max_trials=30, max_concurrent_trials=1)
    searcher = searcher_of(made)
    _trained(searcher, 20)
    snapshot = json.loads(json.dumps(searcher.snapshot()))
    assert sum("optimizer" in trial for trial in snapshot["drawn"]) == 1, "the newest is enough"
    assert not [trial for trial in snapshot["drawn"] if any("optimizer" in name for name in trial["attributes"])]
    snapshot["drawn"][0]["attributes"]["cma:optimizer:0"] = pickle.dumps(_Trap()).hex()
    snapshot["drawn"][-2]["attributes"]["cma:optimizer:0"] = pickle.dumps(_Trap()).hex()
    restored = searcher_of(made)
    restored.restore(snapshot)
    for one in (searcher, restored):
        one.report(19, length=10, metric=0.5)
    assert restored.reached(19) == searcher.reached(19)


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle out of a snapshot was loaded",)


def test_points_are_of_the_space_with_its_conditions() -> None:
    for action in _trained(searcher_of(config(max_trials=15, max_concurrent_trials=1)), 15):
        point = action.hparams
        assert 1e-4 <= point["lr"] <= 1e-1
        assert isinstance(point["units"], int)
        assert ("kernel" in point) == (point["net"]["kind"] == "cnn")
        assert point["epochs"] == 3


def test_a_preview_says_that_all_trials_run_to_the_end() -> None:
    assert preview(config(max_trials=9)) == [{"trials": 9, "length": 10, "unit": "batches"}]


def test_tpe_beats_random_with_the_same_number_of_trials() -> None:
    """On a smooth valley, 40 trials each, over 50 seeds: the best found is on average less than a quarter as bad."""
    valley = {
        "x": {"type": "double", "minval": -5, "maxval": 5},
        "lr": {"type": "log", "minval": -5, "maxval": 0},
    }

    def metric(hparams: Mapping[str, Any], length: int) -> float:
        return (hparams["x"] - 1) ** 2 + (math.log10(hparams["lr"]) + 2) ** 2

    ours, theirs = 0.0, 0.0
    for seed in range(50):
        tpe = simulate(config(valley, max_trials=40, max_concurrent_trials=1), metric, seed=seed)
        plain = simulate(config(valley, name="random", max_trials=40), metric, seed=seed)
        assert tpe.best is not None
        assert plain.best is not None
        ours += tpe.best.metric or 0.0
        theirs += plain.best.metric or 0.0
    print(f"TPE comes to {ours / theirs:.3f} of random's")
    assert ours < theirs / 4


def test_without_optuna_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "trek.integrations.optuna", raising=False)
    with pytest.raises(InputError, match=r"pip install 'trek-ml\[optuna\]'"):
        searcher_of(config(max_trials=2))
