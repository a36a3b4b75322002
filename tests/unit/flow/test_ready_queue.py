"""Which step starts next."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trek.flow import Flow
from trek.flow.ready_queue import ReadyQueue


def _step(name: str) -> Any:
    return Flow("f").step(len, "", name=name).step


def test_small_steps_pass_a_large_one_that_does_not_fit() -> None:
    """They used to wait behind it while slots were free."""
    queue = ReadyQueue()
    for name, slots in (("large", 4), ("one", 1), ("two", 2), ("three", 1)):
        queue.put(_step(name), 1, slots=slots)
    taken = [queue.take(free) for free in (3, 2, 1)]
    assert [one[0].name for one in taken if one] == ["one", "two", "three"]
    assert queue.take(3) is None
    left = queue.take(4)
    assert left is not None
    assert (left[0].name, left[1], left[2], len(queue)) == ("large", 1, 4, 0)


@given(st.lists(st.integers(1, 4), max_size=30), st.lists(st.integers(0, 4), max_size=60))
def test_the_longest_waiting_of_those_that_fit_is_taken(sizes: list[int], frees: list[int]) -> None:
    queue, model = ReadyQueue(), []
    for number, slots in enumerate(sizes):
        queue.put(_step(str(number)), 1, slots=slots)
        model.append((str(number), slots))
    for free in frees:
        taken = queue.take(free)
        expected = next((one for one in model if one[1] <= free), None)
        assert (None if taken is None else (taken[0].name, taken[2])) == expected
        if expected:
            model.remove(expected)
        assert len(queue) == len(model)
