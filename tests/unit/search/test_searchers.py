"""Every searcher keeps the contract, and the rungs and counts are those worked out by hand."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.errors import ConfigError, InvalidHP
from trek.search import make_searcher, preview, simulate
from trek.search.asha import share_evenly, share_trials
from trek.search.base import Searcher, Stop
from trek.search.bracket import StoppingBracket
from trek.search.hyperband import hyperband_brackets
from trek.search.random import RandomSearcher, RandomSettings
from trek.search.rungs import rung_lengths, whole_log
from trek.search.simulate import Simulation, _read
from trek.search.space import Space
from trek.testing.searchers import SearcherSuite, SimulatedWorld

SPACE = {"lr": {"type": "log", "minval": -4, "maxval": -1}, "units": {"type": "int", "minval": 1, "maxval": 64}}
GRID = {"a": {"type": "categorical", "vals": [1, 2, 3]}, "b": {"type": "double", "minval": 0, "maxval": 1, "count": 3}}


def config(hyperparameters: dict[str, Any] = SPACE, **searcher: Any) -> dict[str, Any]:
    return {"searcher": searcher, "hyperparameters": hyperparameters}


def searcher_of(made: dict[str, Any]) -> Searcher:
    found, space, seed = _read(made)
    return make_searcher(found, hyperparameters=space, seed=seed)


CONFIGS = {
    "single": config(name="single", max_length=10),
    "random": config(name="random", max_trials=12, max_length=10, max_concurrent_trials=3),
    "grid": config(GRID, name="grid", max_length=10, max_concurrent_trials=2),
    "asha": config(name="asha", max_trials=20, max_length=64, num_rungs=4, max_concurrent_trials=5),
    "asha_promote": config(name="asha", max_trials=20, max_length=64, num_rungs=4, promote=True),
    "adaptive": config(name="adaptive_asha", max_trials=30, max_length=256, mode="conservative"),
    "adaptive_promote": config(name="adaptive_asha", max_trials=30, max_length=256, promote=True),
    "hyperband": config(name="hyperband", max_length=27, max_concurrent_trials=4),
    "pbt": config(name="pbt", population_size=6, num_rounds=4, length_per_round=5),
}


@pytest.mark.parametrize("name", CONFIGS)
class TestEverySearcher(SearcherSuite):
    """The suite, for each of them."""

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self._config = CONFIGS[name]

    def make(self) -> Searcher:
        return searcher_of(self._config)


# -- worked out by hand


@pytest.mark.parametrize(
    ("max_length", "num_rungs", "divisor", "expected"),
    [
        (937, 3, 4, [58, 234, 937]),
        (100, 4, 4, [1, 6, 25, 100]),
        (10, 5, 4, [1, 1, 1, 2, 10]),  # 10/256, 10/64 and 10/16 are below 1
        (81, 5, 3, [1, 3, 9, 27, 81]),
        (7, 1, 4, [7]),
    ],
)
def test_lengths_of_rungs(max_length: int, num_rungs: int, divisor: int, expected: list[int]) -> None:
    assert rung_lengths(max_length, num_rungs=num_rungs, divisor=divisor) == expected


@pytest.mark.parametrize(
    ("value", "base", "expected"),
    [(1, 4, 0), (3, 4, 0), (4, 4, 1), (243, 3, 5), (242, 3, 4), (1000, 10, 3), (2, 1.5, 1)],
)
def test_whole_logarithms_are_exact_at_powers(value: int, base: float, expected: int) -> None:
    assert whole_log(value, base) == expected


def case(**searcher: Any) -> dict[str, Any]:
    return searcher


# Each line: the config, and how many trials end at which length.
BY_HAND = [
    # 3 rungs of 58, 234, 937 for 12 trials and 2 rungs of 234, 937 for 4: weights 16/3 and 4/2 share 16 as 11+1 and 4.
    (case(name="adaptive_asha", max_trials=16, max_length=937), {58: 9, 234: 5, 937: 2}),
    # aggressive: all 16 in the bracket of 3 rungs: 16 -> 4 -> 1
    (case(name="adaptive_asha", max_trials=16, max_length=937, mode="aggressive"), {58: 12, 234: 3, 937: 1}),
    # conservative: rungs 3, 2, 1 with weights 16/3, 2, 1 share 16 as 10+1, 3, 1+... floors 10, 3, 1, two left: 12, 3, 1
    (case(name="adaptive_asha", max_trials=16, max_length=937, mode="conservative"), {58: 9, 234: 4, 937: 3}),
    # one trial: one rung of the full length
    (case(name="adaptive_asha", max_trials=1, max_length=937), {937: 1}),
    # max_length 3 with divisor 4 leaves one rung, whatever the number of trials
    (case(name="adaptive_asha", max_trials=100, max_length=3), {3: 100}),
    # 64 trials, 64 long: rungs min(5, 4, 4) = 4: 1 4 16 64; standard brackets 4 3 2 with weights 16, 16/3, 2:
    # 64·16/23.33 = 43.9, 14.6, 5.5 -> 43+2, 14, 5: 45->11->2->1, 14->3->1, 5->1
    (case(name="adaptive_asha", max_trials=64, max_length=64), {1: 34, 4: 20, 16: 7, 64: 3}),
    # brackets by name: 2 rungs and 1 rung with weights 4/2 and 1: 10 as 6+1 and 3: 7->1
    (case(name="adaptive_asha", max_trials=10, max_length=100, bracket_rungs=[1, 2]), {25: 6, 100: 4}),
    # divisor 2, 8 trials, 8 long: rungs min(5, 4, 4) = 4: 1 2 4 8; aggressive: 8->4->2->1
    (case(name="adaptive_asha", max_trials=8, max_length=8, divisor=2, mode="aggressive"), {1: 4, 2: 2, 4: 1, 8: 1}),
    (case(name="asha", max_trials=9, max_length=9, num_rungs=3, divisor=3), {1: 6, 3: 2, 9: 1}),
    (case(name="asha", max_trials=2, max_length=100, num_rungs=2), {25: 1, 100: 1}),
    (case(name="random", max_trials=7, max_steps=2), {200: 7}),
    (case(name="single", max_time=3, time_metric="epochs"), {3: 1}),
    # Hyperband's own table for 81 and 3: 81·1, 34·3, 15·9, 8·27, 5·81
    (case(name="hyperband", max_length=81), {1: 54, 3: 41, 9: 24, 27: 14, 81: 10}),
    # 5 of 10 replaced after each of 2 rounds, the last round ends all
    (
        case(
            name="pbt",
            population_size=10,
            num_rounds=3,
            length_per_round=4,
            replace_function={"truncate_fraction": 0.5},
        ),
        {4: 5, 8: 5, 12: 10},
    ),
]


@pytest.mark.parametrize(("searcher", "expected"), BY_HAND, ids=lambda value: str(value)[:60])
def test_how_many_trials_end_where(searcher: dict[str, Any], expected: dict[int, int]) -> None:
    assert {row["length"]: row["trials"] for row in preview(config(**searcher))} == expected


def test_the_grid_is_every_point_once() -> None:
    assert preview(CONFIGS["grid"]) == [{"trials": 9, "length": 10, "unit": "batches"}]
    points = [tuple(trial.hparams.values()) for trial in simulate(CONFIGS["grid"], lambda h, n: 0.0).trials]
    assert points == [(a, b) for a in (1, 2, 3) for b in (0.0, 0.5, 1.0)]


@pytest.mark.parametrize("name", ["hyperband", "pbt", "random", "grid"])
def test_searchers_that_wait_keep_exactly_the_share(name: str) -> None:
    rows = {row["length"]: row["trials"] for row in preview(CONFIGS[name])}
    assert simulate(CONFIGS[name], lambda h, n: hash(str(h)) % 1000).lengths == rows


def test_the_brackets_of_hyperband_are_those_of_its_table() -> None:
    brackets = [(b.sizes, b.lengths) for b in hyperband_brackets(81, divisor=3)]
    assert brackets == [
        ([81, 27, 9, 3, 1], [1, 3, 9, 27, 81]),
        ([34, 11, 3, 1], [3, 9, 27, 81]),
        ([15, 5, 1], [9, 27, 81]),
        ([8, 2], [27, 81]),
        ([5], [81]),
    ]


def test_shares_are_even_with_the_rest_first() -> None:
    assert share_evenly(16, 3) == [6, 5, 5]
    assert share_evenly(0, 2) == [0, 0]
    assert share_evenly(1, 2) == [1, 1]


# -- the stopping rule


def stopping(**kwargs: Any) -> StoppingBracket:
    made = {"max_trials": 8, "max_concurrent": 8, "max_length": 4, "num_rungs": 2, "divisor": 4, **kwargs}
    bracket = StoppingBracket(**made)
    for key in range(8):
        bracket.add(key)
    return bracket


def test_the_first_at_a_rung_goes_on_and_a_worse_one_stops() -> None:
    bracket = stopping()
    assert bracket.report(0, length=1, metric=5.0) == []
    assert bracket.report(1, length=1, metric=6.0) == [("stop", 1)]
    assert bracket.report(2, length=1, metric=4.0) == []


def test_a_tie_goes_before_its_equal() -> None:
    bracket = stopping()
    bracket.report(0, length=1, metric=5.0)
    assert bracket.report(1, length=1, metric=5.0) == []


def test_the_second_best_goes_on_once_eight_have_come() -> None:
    bracket = stopping()
    for key in range(7):
        bracket.report(key, length=1, metric=float(key))
    assert bracket.report(7, length=1, metric=0.5) == []  # place 1 of 8, and int(8 / 4) = 2 go on


def test_one_report_may_pass_several_rungs() -> None:
    bracket = stopping()
    assert bracket.report(0, length=4, metric=5.0) == [("stop", 0)]
    assert [rung.keys for rung in bracket.rungs] == [[0], [0]]


def test_a_failed_trial_counts_as_the_worst_and_a_rejected_one_not_at_all() -> None:
    bracket = stopping()
    bracket.failed(0)
    bracket.report(1, length=1, metric=1.0)
    bracket.rejected(1)
    assert bracket.rungs[0].metrics == [math.inf]
    assert (bracket.num_made, bracket.num_closed) == (7, 1)


def test_a_report_between_rungs_decides_nothing() -> None:
    searcher = searcher_of(config(name="asha", max_trials=2, max_length=100, num_rungs=2))
    searcher.start()
    assert searcher.report(0, length=24, metric=1.0) == []
    assert searcher.report(0, length=25, metric=1.0) == []
    assert Stop(0) in searcher.report(0, length=100, metric=1.0)


# -- properties

_ASHA = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["asha", "adaptive_asha"]),
        "max_trials": st.integers(1, 40),
        "max_length": st.integers(1, 300),
        "divisor": st.integers(2, 5),
        "max_concurrent_trials": st.integers(0, 20),
        "promote": st.booleans(),
    }
)


@settings(max_examples=60)
@given(made=_ASHA, seed=st.integers(0, 10**6), failures=st.sampled_from([0.0, 0.1]))
def test_asha_makes_as_many_trials_as_asked_and_never_more_at_once(
    made: dict[str, Any], seed: int, failures: float
) -> None:
    searcher = searcher_of(config(**made))
    world = SimulatedWorld(searcher, seed, failure_rate=failures).play()
    assert len(world.targets) == made["max_trials"]
    limit = made["max_concurrent_trials"]
    if limit and made["name"] == "asha":
        assert world.most_running <= limit
    assert max(world.lengths.values()) <= made["max_length"]


@given(st.integers(1, 500), st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(2, 5))
def test_shares_of_brackets_add_up(max_trials: int, rungs: list[int], divisor: int) -> None:
    shares = share_trials(max_trials, sorted(rungs, reverse=True), divisor=divisor)
    assert sum(shares) == max_trials
    assert all(share >= 1 for share in shares)


# -- simulation


def test_adaptive_asha_beats_random_with_the_same_budget() -> None:
    """On a valley that short training blurs, over 50 seeds: the best found is on average less than half as far off."""

    def metric(hparams: Any, length: int) -> float:
        return abs(math.log10(hparams["lr"]) + 2.3) + abs(hparams["units"] - 40) / 64 + 2 / length

    ours, theirs = [], []
    for seed in range(50):
        adaptive = simulate(config(name="adaptive_asha", max_trials=64, max_length=64), metric, seed=seed)
        budget = max(adaptive.total_length // 64, 1)
        plain = simulate(config(name="random", max_trials=budget, max_length=64), metric, seed=seed)
        assert adaptive.best is not None
        assert plain.best is not None
        ours.append(metric(adaptive.best.hparams, 10**9))
        theirs.append(metric(plain.best.hparams, 10**9))
    print(f"adaptive_asha comes to {sum(ours) / sum(theirs):.3f} of random's")
    assert sum(ours) / sum(theirs) < 0.5


@pytest.mark.parametrize("promote", [False, True])
def test_ten_thousand_trials_come_to_an_end(promote: bool) -> None:
    many = config(name="adaptive_asha", max_trials=10_000, max_length=1024, promote=promote)
    assert len(simulate(many, lambda hparams, length: hparams["lr"] + 1 / length).trials) == 10_000


def test_larger_may_be_better() -> None:
    result = simulate(
        config(name="random", max_trials=20, max_length=1, smaller_is_better=False), lambda h, n: h["units"]
    )
    assert result.best is not None
    assert result.best.metric == max(trial.hparams["units"] for trial in result.trials)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_search_over_accuracy_keeps_the_trials_that_one_over_its_error_keeps(name: str) -> None:
    def search(metric: str, sign: int) -> Simulation:
        made = {**CONFIGS[name], "searcher": {**CONFIGS[name]["searcher"], "metric": metric}}
        return simulate(made, lambda hparams, length: sign * random.Random(repr((hparams, length))).random())

    accuracy, error = search("accuracy", 1), search("error", -1)
    assert (accuracy.metric, accuracy.smaller_is_better, error.smaller_is_better) == ("accuracy", False, True)
    assert [(trial.hparams, trial.length) for trial in accuracy.trials] == [
        (trial.hparams, trial.length) for trial in error.trials
    ]
    assert accuracy.best is not None
    assert accuracy.best.metric == max(trial.metric or 0.0 for trial in accuracy.trials)


def test_rejected_hyperparameters_are_replaced() -> None:
    def metric(hparams: Any, length: int) -> float:
        if hparams["units"] > 32:
            raise InvalidHP("too many")
        return 1.0

    result = simulate(CONFIGS["random"], metric)
    states = Counter(trial.state for trial in result.trials)
    assert states["ended"] == 12
    assert states["rejected"] > 0
    assert result.lengths == {10: 12}


def test_a_space_that_rejects_everything_comes_to_an_end() -> None:
    def metric(hparams: Any, length: int) -> float:
        raise InvalidHP("never")

    assert simulate(CONFIGS["adaptive"], metric).best is None


def test_a_config_without_a_searcher_is_refused() -> None:
    with pytest.raises(ConfigError, match="searcher"):
        simulate({}, lambda h, n: 0.0)
    with pytest.raises(ConfigError, match="max_trials"):
        simulate(config(name="random", max_length=1), lambda h, n: 0.0)


class Forgetful(RandomSearcher):
    """Draws by its own state, which its snapshot leaves out."""

    _drawn = 0

    def _hparams(self, key: int) -> dict[str, Any]:
        self._drawn += 1
        return {"lr": self._drawn}

    def progress(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    "test", ["test_a_restored_snapshot_continues_exactly", "test_progress_goes_from_nothing_to_all"]
)
def test_a_searcher_that_breaks_the_contract_fails_the_suite(test: str) -> None:
    found, space, seed = _read(CONFIGS["random"])

    class Suite(SearcherSuite):
        def make(self) -> Searcher:
            assert isinstance(found, RandomSettings)
            return Forgetful(found, space=Space(space), seed=seed)

    with pytest.raises(AssertionError):
        getattr(Suite(), test)()


# -- metrics that are not finite


BAD_METRICS = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("bad", BAD_METRICS)
@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_a_search_without_finite_metrics_stops_early(bad: float, smaller_is_better: bool) -> None:
    # Every trial was ranked before its equals, so none was ever stopped.
    made = config(name="asha", max_trials=16, max_length=64, num_rungs=3, smaller_is_better=smaller_is_better)
    assert simulate(made, lambda hparams, length: bad).lengths == {4: 15, 64: 1}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_infinities_count_as_not_a_number_does(name: str, smaller_is_better: bool) -> None:
    # An infinity of the right sign counted as the best.
    made = {**CONFIGS[name], "searcher": {**CONFIGS[name]["searcher"], "smaller_is_better": smaller_is_better}}

    def outcome(bad: float) -> tuple[Any, ...]:
        calls = iter(range(10**6))
        done = simulate(made, lambda hparams, length: bad if (call := next(calls)) % 3 == 1 else float(call % 17))
        best = done.best
        return [trial.length for trial in done.trials], best and (best.key, best.metric)

    assert outcome(math.nan) == outcome(math.inf) == outcome(-math.inf)
