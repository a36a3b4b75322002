"""What is due at which position, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trek
from trek.data.loaders import as_loader
from trek.train.loop.plan import Action, Plan
from trek.train.loop.position import Position
from trek.train.settings import TrainSettings

LOADER = as_loader(trek.DataLoader((torch.zeros(80),), 8), world=trek.World(device_name="cpu"), seed=0)
"""10 batches an epoch."""


def plan(**settings: Any) -> Plan:
    return Plan.of(TrainSettings.of(**settings), LOADER)


def at(batches: int) -> Position:
    """After so many batches, before an epoch that is read is counted."""
    epoch = max(batches - 1, 0) // 10
    return Position(epoch=epoch, epoch_batch=batches - 10 * epoch, batches=batches)


@pytest.mark.parametrize(
    ("batches", "due"),
    [
        (1, ()),
        (2, ("report",)),
        (3, ("validate",)),
        (4, ("report", "save")),
        (6, ("report", "validate")),
        (10, ("report",)),
        (12, ("report", "validate", "save")),
        (24, ("report",)),
    ],
)
def test_actions_come_in_a_fixed_order_and_the_end_of_an_epoch_keeps_its_own(
    batches: int, due: tuple[Action, ...]
) -> None:
    made = plan(
        max_length=trek.batches(24),
        report_period=2,
        validation_period=trek.batches(3),
        checkpoint_period=trek.batches(4),
    )
    assert made.due(at(batches), at_end_of="batch") == due


def test_at_the_end_of_an_epoch_its_validation_and_checkpoint_are_due() -> None:
    made = plan(max_length=trek.epochs(4), validation_period=trek.epochs(1), checkpoint_period=trek.epochs(2))
    ends = [made.due(Position(epoch=epoch, batches=10 * epoch), at_end_of="epoch") for epoch in (1, 2, 3)]
    assert ends == [("validate",), ("validate", "save"), ("validate",)]


def test_nothing_is_due_at_the_end_of_a_body_that_left_its_epoch_unread() -> None:
    made = plan(max_length=trek.epochs(4), validation_period=trek.batches(3))
    assert made.due(Position(epoch=1, epoch_batch=3, batches=13), at_end_of="epoch") == ()


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 7), st.integers(1, 40), st.integers(0, 39))
def test_nothing_is_due_in_an_epoch_before_the_next_batch_that_the_plan_names(
    report: int, validation: int, checkpoint: int, length: int, batches: int
) -> None:
    made = plan(
        max_length=trek.batches(length),
        report_period=report,
        validation_period=trek.batches(validation),
        checkpoint_period=trek.batches(checkpoint),
    )
    coming = int(made.next_batch(at(batches)))
    assert all(made.due(at(between), at_end_of="batch") == () for between in range(batches + 1, coming))
    if not made.is_end(at(coming)):
        assert made.due(at(coming), at_end_of="batch") != ()
