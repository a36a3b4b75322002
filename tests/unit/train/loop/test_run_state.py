"""Everything that a run is, captured and restored: checkpoints, handovers to workers that join, rewinds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.train.loop.run_state import RunState

ROWS = torch.randn(48, 3, generator=torch.Generator().manual_seed(1))


class Running(nn.Module):
    """A model with a parameter, a buffer that is saved, one that is not, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scratch += 1
        return F.dropout(self.norm(self.linear(x)), 0.3, self.training)


class Counter:
    """State of a user."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Run:
    """One process that trains `Running`, batch by batch."""

    def __init__(self, **settings: Any) -> None:
        self.tr = trek.Traveler(world=trek.World(device_name="cpu"), ema_decay=0.9, **settings)
        self.model = self.tr.add_model(Running())
        self.optimizer = self.tr.add_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.scheduler = self.tr.add_scheduler(torch.optim.lr_scheduler.StepLR(self.optimizer, 2), per="batch")
        self.counter = Counter()
        self.tr.add_state("counter", self.counter)
        self.data = self.tr.add_loader((ROWS,), batch_size=4, shuffle=True)
        self.losses: list[float] = []

    @property
    def state(self) -> RunState:
        return self.tr.loop.state

    def train(self, num_batches: int) -> None:
        for _ in self.tr.epochs(1):
            for (x,) in self.tr.train(self.data):
                loss = self.model(x).square().mean()
                self.tr.backward(loss)
                self.tr.step()
                self.tr.log(loss=loss)
                self.counter.count += 1
                self.losses.append(float(loss.detach()))
                if len(self.losses) == num_batches:
                    return


def same(one: Any, other: Any) -> bool:
    """Equal to the bit."""
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_snapshot_that_is_loaded_is_the_state_it_was_taken_of() -> None:
    trained, resumed = Run(), Run()
    trained.train(5)
    snapshot = trained.state.snapshot()
    resumed.state.load(snapshot)
    again = resumed.state.snapshot()
    assert same(again.models, snapshot.models)
    assert same(again.shared, snapshot.shared)
    assert same(again.ranks, snapshot.ranks)


def test_a_state_is_saved_until_anything_happens_that_a_checkpoint_would_have() -> None:
    run = Run()
    run.train(2)
    assert not run.state.is_saved
    run.state.snapshot()
    assert run.state.is_saved
    run.tr.position.end_epoch()
    assert not run.state.is_saved


def test_a_worker_that_joins_has_what_the_others_have_and_what_no_checkpoint_holds() -> None:
    giver, joiner = Run(), Run()
    giver.train(5)
    giver.state.mark()
    giver.state.snapshot()
    giver.state.num_segments, giver.state.save_request = 3, "requested"
    giver.tr.journal.has_told_nan = True
    giver.state.done.add(giver.state.done.next_key("report", 5), {"loss": 1.0})
    joiner.state.take(giver.state.handover())
    joiner.state.begin_generation()
    assert same(joiner.state.shared(), giver.state.shared())
    assert same(dict(joiner.model.named_buffers()), dict(giver.model.named_buffers()))
    assert joiner.state.progress == giver.state.progress == (5, 1)
    assert joiner.state.is_saved
    assert (joiner.state.num_segments, joiner.state.save_request) == (3, "requested")
    assert joiner.tr.journal.has_told_nan


def test_at_the_start_of_a_run_only_what_was_built_is_taken() -> None:
    giver, taker = Run(), Run()
    with torch.no_grad():
        giver.model.linear.weight.fill_(0.25)
    giver.state.num_segments = 3
    taker.state.take(giver.state.handover(), is_start=True)
    assert same(taker.model.state_dict(), giver.model.state_dict())
    assert taker.state.num_segments == 0


def test_a_rewind_goes_back_to_the_last_complete_step() -> None:
    run = Run()
    run.train(3)
    run.state.mark()
    run.tr.position.take(records=4, group_total=4, ends_group=True)
    assert run.tr.position.batches == 4
    run.state.rewind()
    assert (run.tr.position.batches, run.tr.position.records) == (3, 12)
    assert run.state.num_complete == 3


def test_a_mark_inside_an_accumulation_window_keeps_the_last_step() -> None:
    run = Run(accumulate=2)
    run.train(4)
    run.state.mark()
    run.tr.position.take(records=4, group_total=8, ends_group=False)
    run.state.mark()
    assert run.state.num_complete == 4


@pytest.mark.parametrize("part", ["models", "shared"])
def test_a_snapshot_of_another_run_is_refused(part: str) -> None:
    from dataclasses import replace

    from trek.errors import CheckpointError

    run = Run()
    snapshot = run.state.snapshot()
    empty: Any = (
        []
        if part == "models"
        else {**snapshot.shared, "optimization": {**snapshot.shared["optimization"], "optimizers": []}}
    )
    with pytest.raises(CheckpointError, match="Resume with the code that wrote it"):
        run.state.load(replace(snapshot, **{part: empty}))
