"""Who starts, who waits, and why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trek.control.trials.scheduler import BACKFILL_PATIENCE_S, Occupied, Request, plan


def request(trial: int, *, experiment: int = 1, slots: int = 1, **kwargs: object) -> Request:
    return Request(trial_id=trial, experiment_id=experiment, slots=slots, **kwargs)  # type: ignore[arg-type]


def test_free_slots_are_filled_in_order() -> None:
    made = plan([request(1), request(2), request(3)], [], total_slots=2)
    assert made.start == [1, 2]
    assert made.waiting == {3: "needs 1 slot, 0 free, 1st in queue"}


def test_a_smaller_priority_goes_first() -> None:
    assert plan([request(1, priority=50), request(2, priority=10)], [], total_slots=1).start == [2]


def test_experiments_share_slots_fairly() -> None:
    queue = [request(1), request(2), request(3), request(4, experiment=2), request(5, experiment=2)]
    assert plan(queue, [], total_slots=4).start == [1, 4, 2, 5]


def test_a_heavier_experiment_gets_more() -> None:
    queue = [request(i, weight=3.0) for i in range(1, 5)] + [request(i, experiment=2) for i in range(5, 9)]
    assert sorted(plan(queue, [], total_slots=4).start) == [1, 2, 3, 5]


def test_an_experiments_own_limits_hold() -> None:
    running = [Occupied(trial_id=9, experiment_id=1, slots=1)]
    assert plan([request(1, max_slots=1)], running, total_slots=4).start == []
    made = plan([request(1, max_trials=1)], running, total_slots=4)
    assert made.waiting == {1: "its experiment may run 1 trials at once and runs 1"}


def test_a_small_trial_may_pass_one_that_waits_for_many_slots() -> None:
    running = [Occupied(trial_id=9, experiment_id=3, slots=1)]
    queue = [request(1, slots=4), request(2, experiment=2)]
    assert plan(queue, running, total_slots=4).start == [2]


def test_but_not_for_ever() -> None:
    running = [Occupied(trial_id=9, experiment_id=3, slots=1)]
    queue = [request(1, slots=4, waited_s=BACKFILL_PATIENCE_S + 1), request(2, experiment=2)]
    assert plan(queue, running, total_slots=4).start == []


def test_what_can_never_run_says_so_and_blocks_nobody() -> None:
    made = plan([request(1, slots=8, waited_s=10_000), request(2)], [], total_slots=4)
    assert made.start == [2]
    assert made.waiting == {1: "needs 8 slots, the cluster has 4"}


def test_cores_may_be_shared_by_a_trial_that_is_alone() -> None:
    assert plan([request(1, slots=8)], [], total_slots=4, may_oversubscribe=True).start == [1]
    running = [Occupied(trial_id=9, experiment_id=3, slots=1)]
    assert plan([request(1, slots=8)], running, total_slots=4, may_oversubscribe=True).start == []


_REQUESTS = st.builds(
    Request,
    trial_id=st.integers(1, 10**6),
    experiment_id=st.integers(1, 4),
    slots=st.integers(1, 6),
    priority=st.integers(1, 99),
    weight=st.floats(0.1, 10),
    max_slots=st.none() | st.integers(1, 8),
    waited_s=st.floats(0, 1000),
)


@given(queue=st.lists(_REQUESTS, unique_by=lambda r: r.trial_id, max_size=12), total=st.integers(1, 8))
def test_slots_are_never_given_twice_and_everybody_gets_an_answer(queue: list[Request], total: int) -> None:
    made = plan(queue, [], total_slots=total)
    slots = {r.trial_id: r.slots for r in queue}
    assert sum(slots[trial] for trial in made.start) <= total
    assert set(made.start) | set(made.waiting) == set(slots)
    assert not set(made.start) & set(made.waiting)
