"""Promotion ASHA promotes the trials that Determined promotes, a late best one included."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trek.search import simulate
from trek.search.bracket import PromotionBracket


def bracket(max_trials: int, *, divisor: float = 4, num_rungs: int = 2) -> PromotionBracket:
    length = int(100 * divisor ** (num_rungs - 1))
    return PromotionBracket(
        max_trials=max_trials, max_concurrent=0, max_length=length, num_rungs=num_rungs, divisor=divisor
    )


def promoted_by_reference(metrics: list[float], *, divisor: float) -> list[int]:
    """The places in `metrics` that Determined's promotionsAsync promotes, in its order."""
    ranked: list[tuple[float, int]] = []
    promoted: list[int] = []
    for arrival, metric in enumerate(metrics):
        before, now = int(len(ranked) / divisor), int((len(ranked) + 1) / divisor)
        place = bisect_right([one for one, _ in ranked], metric)
        ranked.insert(place, (metric, arrival))
        if place < now:
            promoted.append(arrival)
        elif now != before and ranked[before][1] not in promoted:
            promoted.append(ranked[before][1])
    return promoted


def promoted_by_bracket(metrics: list[float], *, divisor: float, is_restored: bool = False) -> list[int]:
    """Whom a bracket promotes from its first rung, while a trial that never ends keeps it from finishing up."""
    one = bracket(len(metrics) + 1, divisor=divisor)
    for key in range(len(metrics) + 1):
        one.add(key)
    promoted: list[int] = []
    for key, metric in enumerate(metrics):
        one.report(key, length=100, metric=metric)
        promoted += [who for verdict, who in one.reached(key) if verdict == "extend"]
        if is_restored:
            kept = json.loads(json.dumps(one.snapshot()))
            one = bracket(len(metrics) + 1, divisor=divisor)
            one.restore(kept)
    return promoted


METRICS = st.lists(st.integers(-5, 5).map(float) | st.floats(-10, 10) | st.just(float("inf")), max_size=40)


@given(metrics=METRICS, divisor=st.sampled_from([1.5, 2, 3, 4]), is_restored=st.booleans())
def test_promotions_are_those_of_the_reference(metrics: list[float], divisor: float, is_restored: bool) -> None:
    expected = promoted_by_reference(metrics, divisor=divisor)
    assert promoted_by_bracket(metrics, divisor=divisor, is_restored=is_restored) == expected


def test_a_late_best_trial_is_promoted() -> None:
    # It waited for ever: one promotion was allowed, and the best of the first four had taken it.
    order = iter([5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0])
    metrics: dict[float, float] = {}
    config = {
        "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        "searcher": {
            "name": "asha", "promote": True, "num_rungs": 2, "divisor": 4, "max_trials": 7,
            "max_concurrent_trials": 1, "max_length": 400,
        },
    }  # fmt: skip

    def metric(hparams: Mapping[str, Any], length: int) -> float:
        if hparams["x"] not in metrics:
            metrics[hparams["x"]] = next(order)
        return metrics[hparams["x"]]

    done = simulate(config, metric)
    assert {metrics[trial.hparams["x"]] for trial in done.trials if trial.length == 400} == {5.0, 1.0}


def test_a_waiting_trial_that_fails_counts_once_and_is_never_promoted() -> None:
    # It was entered on its rung a second time, as the worst, which allowed one promotion too many.
    one = bracket(8)
    for key in range(8):
        one.add(key)
    for key in range(3):
        one.report(key, length=100, metric=float(key))
        assert one.reached(key) == []
    assert one.failed(0) == []
    assert one.rungs[0].keys == [0, 1, 2]
    one.report(3, length=100, metric=9.0)
    assert one.reached(3) == []  # trial 0 would have been promoted


@given(metrics=METRICS.filter(bool))
def test_every_trial_ends_whatever_the_metrics_are(metrics: list[float]) -> None:
    one = bracket(len(metrics), num_rungs=3)
    waiting: dict[int, float] = {}
    for key, metric in enumerate(metrics):
        one.add(key)
        waiting[key] = metric
    while waiting:
        key, metric = waiting.popitem()
        one.report(key, length=10**6, metric=metric)
        for verdict, who in one.reached(key):
            if verdict == "extend":
                waiting[who] = metrics[who]
    assert one.is_done
