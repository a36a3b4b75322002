"""What the workers of an elastic group do together: one worker, and a connection that the test answers for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn

import trek
from trek.elastic.coordinator_client import Dismissed, Formation, MemberClient
from trek.errors import InputError
from trek.strategies.base import GroupBroken
from trek.strategies.regrouping import Regrouping
from trek.train.loop.elastic_group import ElasticGroup
from trek.train.loop.run_state import RunState
from trek.train.loop.stopping import Stopped, StopRequest
from trek.train.loop.worker_group import Rewound

WORLD = trek.World(device_name="cpu", max_size=2)


class FakeMember:
    """Forms a generation of this worker alone whenever it arrives."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.generation = 0
        self.has_source = False
        self.is_abandoned = self.wants_regroup = False
        self.dismissal: str | None = None
        self.progress = (-1, 0)
        self.on_abandon: Callable[[], None] = lambda: None
        self.on_stop: Callable[[], None] = lambda: None
        self.waiting_s: Callable[[], float] = lambda: 0.0

    def start(self) -> None:
        self.calls.append("start")

    def ready(self) -> Formation:
        return self._form("ready", is_open=True)

    def arrive(self, progress: tuple[int, int], *, is_open: bool) -> Formation:
        self.progress = progress
        return self._form("arrive", is_open=is_open)

    def leave(self, reason: str) -> None:
        self.calls.append(f"leave {reason}")

    def check_in(self) -> None:
        if self.dismissal is not None:
            raise Dismissed(self.dismissal)

    def _form(self, call: str, *, is_open: bool) -> Formation:
        self.calls.append(call)
        self.check_in()
        self.generation += 1
        world = replace(WORLD, generation=self.generation)
        return Formation(world, has_source=self.has_source, is_open=is_open, members=frozenset({"a"}))


class Joined:
    """A worker that belongs to a group."""

    def __init__(self) -> None:
        self.member, self.stop = FakeMember(), StopRequest()
        self.group = ElasticGroup(cast("MemberClient", self.member), Regrouping(WORLD), stop=self.stop)
        self.tr = trek.Traveler(world=trek.World(device_name="cpu"))
        model = self.tr.add_model(nn.Linear(1, 1))
        self.tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        self.starts: list[bool] = []

    @property
    def state(self) -> RunState:
        return self.tr.loop.state

    def join(self) -> None:
        self.group.join(self.starts.append, state=self.state, begin_generation=self.state.begin_generation)
        self.group.catch_up()

    def train(self, num_batches: int) -> None:
        """Count batches, each of which completes a step."""
        for _ in range(num_batches):
            self.state.position.take(records=1, group_total=1, ends_group=True)
            self.group.complete()


@pytest.fixture
def joined() -> Iterator[Joined]:
    worker = Joined()
    ElasticGroup._has_joined = False
    worker.join()
    yield worker
    ElasticGroup._has_joined = False


def breaks(times: int, then: Any = "result") -> Callable[[], Any]:
    """An action in which the group breaks so often before it is done."""
    left = [times]

    def action() -> Any:
        if left[0]:
            left[0] -= 1
            raise GroupBroken
        return then

    return action


def test_the_first_generation_starts_the_run_and_says_that_it_is_new(joined: Joined) -> None:
    assert joined.starts == [False]
    assert joined.member.calls == ["start", "ready"]


def test_an_action_whose_group_breaks_is_done_with_the_next_group(joined: Joined) -> None:
    joined.member.has_source = True
    assert joined.group.together("report", breaks(2)) == "result"
    assert joined.member.calls == ["start", "ready", "arrive", "arrive"]


def test_an_action_that_the_others_completed_is_not_done_again(joined: Joined) -> None:
    joined.state.done.add(("report", 0, 0), "of the others")
    assert joined.group.together("report", lambda: pytest.fail("it is done")) == "of the others"


def test_an_action_inside_of_another_is_a_part_of_it(joined: Joined) -> None:
    joined.group.together("outer", lambda: joined.group.together("inner", lambda: None))
    assert [entry[0][0] for entry in joined.state.done.state_dict()] == ["outer"]


def test_progress_counts_complete_batches_and_what_was_done_after_them(joined: Joined) -> None:
    joined.train(2)
    assert joined.group.progress == (2, 0)
    joined.group.together("report", lambda: None)
    assert joined.group.progress == (2, 1)
    joined.train(1)
    assert joined.group.progress == (3, 0)


def test_a_group_that_breaks_in_a_batch_waits_for_the_callers_code(joined: Joined) -> None:
    joined.group.is_in_batch = True
    joined.group.regroup(is_open=True)
    assert joined.group.is_interrupted
    assert joined.member.calls == ["start", "ready"]
    assert joined.group.part("report").is_done, "the batch will be done again, and the report with it"


def test_a_batch_that_must_be_read_again_rewinds_the_loop(joined: Joined) -> None:
    joined.member.has_source = True
    joined.train(1)
    joined.state.position.take(records=1, group_total=2, ends_group=False)
    with pytest.raises(Rewound):
        joined.group.regroup_between()
    assert joined.state.position.batches == 1


def test_a_step_that_the_others_applied_is_not_applied_again(joined: Joined) -> None:
    assert not joined.group.has_done("step")
    joined.group.note_done("step")
    joined.state.done.rewind(-1)
    assert joined.group.has_done("step")


def test_a_worker_that_is_evicted_ends_quietly(joined: Joined) -> None:
    joined.member.dismissal = "it did not answer"
    with pytest.raises(Stopped) as stopped:
        joined.group.together("report", lambda: None)
    assert stopped.value.reason == "dismissed"


def test_an_error_that_comes_back_in_the_same_group_is_raised(joined: Joined) -> None:
    joined.member.has_source = True
    failure = RuntimeError("the program's own")

    def action() -> None:
        strategy = cast("Regrouping", joined.group._strategy)
        strategy.failure = failure
        raise GroupBroken

    original = Regrouping.enter

    def enter(self: Regrouping, world: trek.World) -> None:
        original(self, world)
        self.failure = failure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Regrouping, "enter", enter)
        with pytest.raises(RuntimeError, match="the program's own"):
            joined.group.together("report", action)


def test_a_worker_that_is_asked_to_stop_asks_once_to_be_left_out(joined: Joined) -> None:
    assert joined.group.leave()
    assert joined.group.leave()
    assert joined.member.calls[-1] == "leave SIGTERM"
    assert joined.member.calls.count("leave SIGTERM") == 1
    joined.member.on_stop()
    assert not joined.group.leave(), "the whole job stops, so that nobody is left"
    assert joined.stop.reason == "signal"


def test_a_second_training_in_the_same_process_is_refused(joined: Joined) -> None:
    with pytest.raises(InputError, match="Start the second one with a command of its own"):
        Joined().join()
