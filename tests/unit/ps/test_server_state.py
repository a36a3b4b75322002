"""Pushes of several workers in any order: what a server then has does not depend on who was slow."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trek.ps.rules import Rule
from trek.ps.server_state import Mode, Push, ServerState

KEY = ("w", 0)
RULE = Rule.named("SGD", lr=0.1, momentum=0.9)
NUM_BATCHES = 4
schedules = st.lists(st.integers(0, 2), max_size=60)
"""Which of three workers does its next thing: pull, or push what it computed from what it pulled."""


def gradient(value: torch.Tensor, target: float) -> torch.Tensor:
    """Of a batch whose loss is smallest where all values are its target."""
    return value - target


class Worker:
    """Pulls, computes and pushes its batches, each until it is accepted."""

    def __init__(self, number: int, state: ServerState) -> None:
        self.name, self.state = f"worker {number}", state
        self.batches = [float(10 * number + k) for k in range(NUM_BATCHES)]
        self.pulled: tuple[int, torch.Tensor] | None = None
        self.num_done = 0

    def act(self) -> float | None:
        """Do the next thing; the batch that was applied by it."""
        if self.num_done == NUM_BATCHES:
            return None
        if self.pulled is None:
            self.pulled = self.state.version, self.state.dense[KEY].value.clone()
            return None
        (version, value), self.pulled = self.pulled, None
        batch = self.batches[self.num_done]
        push = Push(self.name, self.num_done + 1, version, [(KEY, gradient(value, batch), RULE)])
        if self.state.judge(push) == "rejected":
            return None
        self.state.apply(push)
        self.num_done += 1
        return batch


def run(schedule: list[int], mode: Mode) -> tuple[ServerState, list[float]]:
    """The state after all batches of three workers, and the batches in the order in which they were applied."""
    state = ServerState()
    state.initialize({KEY: torch.arange(3.0)}, mode=mode)
    workers = [Worker(number, state) for number in range(3)]
    applied = [workers[number].act() for number in schedule]
    while any(worker.num_done < NUM_BATCHES for worker in workers):
        applied += [worker.act() for worker in workers]
    return state, [batch for batch in applied if batch is not None]


@given(schedule=schedules)
def test_without_tolerance_the_result_is_that_of_one_worker_to_the_bit(schedule: list[int]) -> None:
    state, order = run(schedule, Mode(max_staleness=0))
    alone = torch.nn.Parameter(torch.arange(3.0))
    optimizer = torch.optim.SGD([alone], lr=0.1, momentum=0.9)
    for batch in order:
        alone.grad = gradient(alone.detach(), batch)
        optimizer.step()
    assert sorted(order) == sorted(float(10 * number + k) for number in range(3) for k in range(NUM_BATCHES))
    assert torch.equal(state.dense[KEY].value, alone.detach())


@given(schedule=schedules, tolerance=st.integers(0, 3), num_waited=st.integers(1, 3))
def test_no_push_is_older_than_tolerated_and_every_batch_is_applied_once(
    schedule: list[int], tolerance: int, num_waited: int
) -> None:
    state, order = run(schedule, Mode(grads_to_wait=num_waited, max_staleness=tolerance))
    assert len(order) == len(set(order)) == 3 * NUM_BATCHES
    assert max(state.staleness) <= tolerance
    assert state.version == 3 * NUM_BATCHES // num_waited
