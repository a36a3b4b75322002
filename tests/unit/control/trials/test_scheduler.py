"""Who starts, who waits, and why."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

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


def test_what_a_cluster_that_can_grow_does_not_hold_waits_for_nodes_also_if_nothing_runs() -> None:
    made = plan([request(1, slots=8), request(2)], [], total_slots=4, may_oversubscribe=True, can_grow=True)
    assert made.start == [2]
    assert made.waiting == {1: "needs 8 slots, the cluster has 4, waits for more nodes"}
    assert made.without_room == [1]


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


def elastic(trial: int, *, slots: int, least: int = 1, most: int = 4, experiment: int = 1, **more: Any) -> Occupied:
    return Occupied(trial_id=trial, experiment_id=experiment, slots=slots, least=least, most=most, **more)


def test_an_elastic_trial_gets_what_is_free_up_to_its_maximum() -> None:
    assert plan([request(1, most=3)], [], total_slots=8).sizes == {1: 3}
    assert plan([], [elastic(1, slots=1)], total_slots=3).sizes == {1: 3}


def test_it_gives_back_what_another_needs_to_start() -> None:
    made = plan([request(2, experiment=2, slots=2)], [elastic(1, slots=4)], total_slots=4)
    assert (made.start, made.sizes) == ([], {1: 2})
    assert "waits for elastic trials to give theirs back" in made.waiting[2]
    made = plan([request(2, experiment=2, slots=2)], [elastic(1, slots=2)], total_slots=4)
    assert (made.start, made.sizes) == ([2], {1: 2, 2: 2})


def test_it_keeps_its_slots_when_they_would_not_be_enough() -> None:
    running = [elastic(1, slots=2, least=2), Occupied(trial_id=9, experiment_id=3, slots=2)]
    assert plan([request(2, slots=4)], running, total_slots=4).sizes == {1: 2}


def test_two_elastic_trials_share_the_slots() -> None:
    made = plan([request(2, experiment=2, most=4)], [elastic(1, slots=4)], total_slots=4)
    assert made.sizes == {1: 2}
    assert plan([], [elastic(1, slots=2), elastic(2, slots=1, experiment=2)], total_slots=4).sizes == {1: 2, 2: 2}


def test_an_elastic_trial_that_was_scaled_down_shrinks() -> None:
    assert plan([], [elastic(1, slots=3, most=1)], total_slots=4).sizes == {1: 1}


def test_an_experiments_limit_holds_for_what_is_free() -> None:
    running = [elastic(1, slots=1, max_slots=3), elastic(2, slots=1, max_slots=3)]
    assert sum(plan([], running, total_slots=8).sizes.values()) == 3


_ELASTIC = st.builds(
    lambda trial_id, experiment_id, least, extra, priority, max_slots: Request(
        trial_id, experiment_id, least, least + extra, priority, max_slots=max_slots
    ),
    st.integers(1, 10**6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from([10, 50]),
    st.none() | st.integers(4, 8),
)


def _occupied(one: Request, slots: int) -> Occupied:
    least = one.slots if one.most is not None else None
    limits = {"priority": one.priority, "weight": one.weight, "max_slots": one.max_slots}
    return Occupied(one.trial_id, one.experiment_id, slots, least, one.most or 0, **limits)  # type: ignore[arg-type]


@given(queue=st.lists(_REQUESTS | _ELASTIC, unique_by=lambda r: r.trial_id, max_size=8), total=st.integers(1, 8))
def test_slots_flow_to_whoever_waits_and_come_to_rest(queue: list[Request], total: int) -> None:
    """Trials arrive one after another; workers leave a round after they were asked to."""
    running: dict[int, tuple[Request, int]] = {}
    waiting: list[Request] = []
    for one in [*queue, *[None] * 4]:
        waiting += [one] if one is not None else []
        held = [_occupied(request, slots) for request, slots in running.values()]
        made = plan(waiting, held, total_slots=total)
        after = {trial: max(made.sizes.get(trial, 0), slots) for trial, (_, slots) in running.items()}
        assert sum(after.values()) + sum(made.sizes[trial] for trial in made.start) <= total
        for request, slots in list(running.values()):
            size = made.sizes.get(request.trial_id, slots)
            assert request.slots <= size <= (request.most or request.slots)
            running[request.trial_id] = request, size
        for request in [one for one in waiting if one.trial_id in made.start]:
            waiting.remove(request)
            running[request.trial_id] = request, made.sizes[request.trial_id]
    held = [_occupied(request, slots) for request, slots in running.values()]
    made = plan(waiting, held, total_slots=total)
    assert made.start == [], "nobody that could run waits"
    assert not any("give theirs back" in why for why in made.waiting.values())
    assert made.sizes == {o.trial_id: o.slots for o in held if o.least is not None}, "nothing moves any more"
    has_barrier = any(one.waited_s > BACKFILL_PATIENCE_S for one in waiting)
    for one in waiting:
        own = sum(o.base for o in held if o.experiment_id == one.experiment_id)
        is_own_limit = one.max_slots is not None and own + one.slots > one.max_slots
        assert is_own_limit or has_barrier or one.slots > total - sum(o.base for o in held)


def order_by_definition(queue: list[Request], *, num_started: int) -> list[int]:
    """The first that start on an endless cluster: again and again the smallest by priority, share and age."""
    used, order, left = Counter[int](), list[int](), list(queue)
    while left and len(order) < num_started:
        chosen = min(left, key=lambda one: (one.priority, used[one.experiment_id] / one.weight, one.trial_id))
        left.remove(chosen)
        used[chosen.experiment_id] += chosen.slots
        order.append(chosen.trial_id)
    return order


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 50]), st.sampled_from([0.5, 1.0, 3.0])),
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
def test_turns_are_those_of_the_definition(rows: list[tuple[int, int, int, float]], chooser: random.Random) -> None:
    queue = [
        Request(number, experiment, slots, priority=priority, weight=weight)
        for number, (experiment, slots, priority, weight) in enumerate(rows, start=1)
    ]
    expected = order_by_definition(queue, num_started=len(queue))
    chooser.shuffle(queue)
    assert plan(queue, [], total_slots=10_000).start == expected


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9)), max_size=20), st.integers(0, 60))
def test_what_is_left_is_shared_as_the_definition_says(rows: list[tuple[int, int, int]], spare: int) -> None:
    running = [
        Occupied(number, experiment, least, least=least, most=least + more)
        for number, (experiment, least, more) in enumerate(rows, start=1)
    ]
    total = sum(one.slots for one in running) + spare
    sizes = {one.trial_id: one.slots for one in running}
    used = Counter[int]()
    for one in running:
        used[one.experiment_id] += one.slots
    for _ in range(spare):
        open_ = [one for one in running if sizes[one.trial_id] < one.most]
        if open_:
            chosen = min(open_, key=lambda one: (used[one.experiment_id], sizes[one.trial_id], one.trial_id))
            sizes[chosen.trial_id] += 1
            used[chosen.experiment_id] += 1
    assert plan([], running, total_slots=total).sizes == sizes
