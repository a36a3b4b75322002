"""Ranks that log in any order, and not all the same metrics, get every metric over those that have it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.errors import InputError
from trek.strategies.base import ReduceOp
from trek.strategies.solo import Solo
from trek.train.metrics.metric_sums import MetricSums
from trek.world import World


class Meeting:
    """Where the threads of a test exchange values, in place of processes."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=10)
        self.values: list[Any] = [None] * size
        self.num_messages = 0


class Threaded(Solo):
    """A strategy whose ranks are threads; ranks that make different calls fail instead of hanging."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.world = World(rank=rank, size=len(meeting.values))
        self._meeting = meeting

    def gather(self, value: Any) -> list[Any]:
        self._meeting.barrier.wait()
        self._meeting.values[self.world.rank] = value
        self._meeting.barrier.wait()
        found = list(self._meeting.values)
        self._meeting.barrier.wait()
        self._meeting.num_messages += self.world.is_leader
        return found

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        gathered = self.gather((op, tensor))
        assert len({(one, other.shape) for one, other in gathered}) == 1, "ranks sent different messages"
        stacked = torch.stack([other for _, other in gathered])
        return stacked.sum(0) if op == "sum" else stacked.amax(0) if op == "max" else stacked.amin(0)


def on_ranks(functions: list[Callable[[Threaded], Any]]) -> tuple[list[Any], Meeting]:
    meeting = Meeting(len(functions))
    results: list[Any] = [None] * len(functions)

    def run(rank: int) -> None:
        try:
            results[rank] = functions[rank](Threaded(rank, meeting))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, meeting


NAMES = ("a", "b", "c", "d")
HOW: dict[str, Any] = {"b": "sum", "c": "max", "d": "min"}
batch = st.dictionaries(st.sampled_from(NAMES), st.integers(-50, 50), max_size=4)
report = st.lists(st.tuples(batch, st.integers(0, 3)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(report, min_size=2, max_size=2), min_size=2, max_size=3))
def test_metrics_are_reduced_by_name_over_the_ranks_that_have_them(of_ranks: list[list[Any]]) -> None:
    """By their place in the dict, ranks got each other's values; with another number of metrics they hung."""

    def of_rank(reports: list[Any]) -> Callable[[Threaded], list[dict[str, float]]]:
        def reduce(strategy: Threaded) -> list[dict[str, float]]:
            sums = MetricSums()
            told = []
            for batches in reports:
                for metrics, samples in batches:
                    sums.add(metrics, num_samples=samples)
                told.append(sums.reduce(strategy, how={n: HOW[n] for n in sums.names() if n in HOW}))
            return told

        return reduce

    results, _ = on_ranks([of_rank(reports) for reports in of_ranks])
    for rank in range(len(of_ranks)):
        for number in range(2):
            batches = [one for reports in of_ranks for one in reports[number]]
            assert results[rank][number] == pytest.approx(expected(batches), nan_ok=True)


def expected(batches: list[tuple[dict[str, float], int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in {name for metrics, _ in batches for name in metrics}:
        values = [(metrics[name], samples) for metrics, samples in batches if name in metrics and samples]
        if name == "b":
            found[name] = sum(value for value, _ in values)
        elif not values:
            found[name] = float("nan")
        elif name in HOW:
            found[name] = (max if name == "c" else min)(value for value, _ in values)
        else:
            found[name] = sum(value * samples for value, samples in values) / sum(samples for _, samples in values)
    return found


def test_names_are_exchanged_once_and_not_with_every_report() -> None:
    def reduce(strategy: Threaded) -> None:
        sums = MetricSums()
        for _ in range(10):
            sums.add({"loss": 1.0, "accuracy": 0.5}, num_samples=4)
            sums.reduce(strategy)

    _, meeting = on_ranks([reduce, reduce])
    assert meeting.num_messages == 10 + 2


def test_a_metric_object_that_a_rank_did_not_log_is_refused_on_every_rank() -> None:
    """The others used to wait for it for ever."""
    torchmetrics = pytest.importorskip("torchmetrics")

    def reduce(strategy: Threaded) -> None:
        sums = MetricSums()
        sums.add({"f1": torchmetrics.MeanMetric()} if strategy.world.is_leader else {"f1": 1.0}, num_samples=4)
        sums.reduce(strategy)

    results, _ = on_ranks([reduce, reduce])
    for error in results:
        assert isinstance(error, InputError)
        assert "'f1' is a torchmetrics object that only 1 of 2 ranks logged" in str(error)
