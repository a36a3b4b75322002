"""What a cluster that can grow is asked for: all that runs and waits for slots, and nothing once nobody waits."""

from __future__ import annotations

import pytest

from trek.control.trials.room_request import HOLD_S, RoomRequest, wanted_workers
from trek.control.trials.scheduler import Occupied, Request, plan
from trek.errors import OutsideError
from trek.testing.clock import FakeClock
from trek.testing.simulated_engine import SimulatedEngine


@pytest.mark.parametrize(
    ("queue", "running", "total", "wanted"),
    [
        ([], [4], 4, 0),
        ([2, 2], [], 4, 0),
        ([2, 2, 3], [], 4, 7),
        ([8], [2], 4, 10),
        ([1], [4], 4, 5),
        ([50_000], [], 4, 10_000),
    ],
)
def test_room_is_asked_for_all_that_run_and_wait(queue: list[int], running: list[int], total: int, wanted: int) -> None:
    waiting = [Request(number, 1, slots) for number, slots in enumerate(queue, start=1)]
    held = [Occupied(number, 2, slots) for number, slots in enumerate(running, start=100)]
    assert wanted_workers(waiting, held, plan(waiting, held, total_slots=total)) == wanted


def test_what_waits_for_its_own_experiment_asks_for_nothing() -> None:
    queue = [Request(number, 1, 1, max_trials=1) for number in (1, 2, 3)]
    assert wanted_workers(queue, [], plan(queue, [], total_slots=1)) == 0


class GrowingEngine(SimulatedEngine):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(num_nodes=1, slots_per_node=1)
        self.asked: list[int] = []
        self.is_away = False

    def request_room(self, num_workers: int) -> None:
        if self.is_away:
            raise OutsideError("the head does not answer")
        self.asked.append(num_workers)


def test_an_engine_is_asked_when_something_changes_and_again_after_an_error() -> None:
    engine = GrowingEngine()
    room = RoomRequest(engine, clock=FakeClock())
    for wanted in (4, 4, 6):
        room.ask(wanted)
    engine.is_away = True
    room.withdraw()
    engine.is_away = False
    room.withdraw()
    room.withdraw()
    assert engine.asked == [4, 6, 0]


def test_what_a_killed_control_plane_asked_for_is_withdrawn_first() -> None:
    engine = GrowingEngine()
    RoomRequest(engine, clock=FakeClock()).ask(0)
    assert engine.asked == [0]


def test_a_request_that_stands_is_made_again_and_one_for_nothing_is_not() -> None:
    engine, clock = GrowingEngine(), FakeClock()
    room = RoomRequest(engine, clock=clock)
    for wanted in (4, 4, 0, 0):
        room.ask(wanted)
        clock.advance(HOLD_S)
    assert engine.asked == [4, 4, 0]


def test_a_request_stands_until_the_trials_that_it_was_for_have_their_nodes() -> None:
    engine, clock = GrowingEngine(), FakeClock()
    room = RoomRequest(engine, clock=clock)
    room.ask(4)
    clock.advance(HOLD_S)
    room.ask(0, is_starting=True)
    clock.advance(HOLD_S - 1)
    room.ask(0)
    assert set(engine.asked) == {4}
    clock.advance(1)
    room.ask(0)
    assert engine.asked[-1] == 0


def test_trials_that_start_ask_for_nothing_by_themselves() -> None:
    engine = GrowingEngine()
    room = RoomRequest(engine, clock=FakeClock())
    room.ask(0, is_starting=True)
    room.ask(0, is_starting=True)
    assert engine.asked == [0]
