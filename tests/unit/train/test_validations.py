"""When a Trial is validated and what a run that ends itself leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import trek
from trek.testing.trials import PointsTrial
from trek.train.length import Length
from trek.train.loop.position import Position
from trek.train.loop.schedule import Occasions, Schedule
from trek.train.result import Result


class Ending(PointsTrial):
    """Ends its run in the batch `end_at`."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        if batch_idx + 1 == self.context.get_hparam("end_at"):
            self.context.set_stop_requested()
        return super().train_batch(batch, model, batch_idx)


def fit(end_at: int = -1, **settings: Any) -> Result:
    given_: dict[str, Any] = {"max_length": trek.batches(20), "show_progress": False, **settings}
    return trek.fit(Ending, hparams={"global_batch_size": 8, "end_at": end_at}, **given_)


def validated(result: Result) -> list[int]:
    return [row["batches"] for row in result.metrics if row["group"] == "validation"]


# -- at which lengths


@pytest.mark.parametrize(
    ("lengths", "period", "expected"),
    [
        ((3, 11), None, [3, 11, 20]),
        ((3, 11, 20), None, [3, 11, 20]),
        ((3, 11), 10, [3, 10, 11, 20]),
        ((6, 12), 6, [6, 12, 18, 20]),
    ],
)
def test_validations_are_made_at_the_lengths_and_the_period_only(
    lengths: tuple[int, ...], period: int | None, expected: list[int]
) -> None:
    result = fit(
        validation_lengths=tuple(map(trek.batches, lengths)),
        validation_period=trek.batches(period) if period else None,
    )
    assert validated(result) == expected


def test_lengths_may_be_given_in_epochs_and_records() -> None:
    result = fit(max_length=trek.epochs(4), validation_lengths=(trek.epochs(1), trek.epochs(3)))
    batches = validated(result)
    assert [at / batches[0] for at in batches] == [1, 3, 4]
    assert validated(fit(validation_lengths=(trek.records(25),))) == [4, 20]


@given(
    lengths=st.lists(st.integers(1, 60), max_size=5),
    period=st.integers(1, 30) | st.none(),
    done=st.integers(0, 60),
)
def test_the_next_occasion_is_never_passed_over(lengths: list[int], period: int | None, done: int) -> None:
    occasions = Occasions(Schedule(batches=period), tuple(Schedule(batches=length) for length in lengths))
    due = [at for at in range(done + 1, 200) if occasions.is_due(Position(batches=at))]
    assert occasions.next_batch(Position(batches=done)) == (due[0] if due else float("inf"))


def test_every_validation_is_saved_if_set_so() -> None:
    result = fit(validation_lengths=(Length(3, "batches"), Length(11, "batches")), checkpoint_policy="all", keep_last=9)
    saved = sorted(int(path.name.split("-")[1]) for path in (result.path / "checkpoints").glob("batch-*"))
    assert saved == [3, 11, 20]


# -- the end


@pytest.mark.parametrize("end_at", [1, 4, 7])
def test_a_run_that_ends_itself_is_validated_and_saved_as_a_whole_one_is(end_at: int) -> None:
    # It ended without a validation, and its checkpoint had no metrics.
    ended = fit(end_at, checkpoint_period=trek.batches(4))
    whole = fit(max_length=trek.batches(end_at), checkpoint_period=trek.batches(4))
    assert ended.stop_reason == "user"
    assert validated(ended) == validated(whole) == [end_at]
    assert ended.checkpoint is not None
    assert whole.checkpoint is not None
    assert ended.checkpoint.batches == end_at
    assert ended.checkpoint.metrics == whole.checkpoint.metrics != {}
    for name, weights in whole.checkpoint.state_dict().items():
        assert torch.equal(weights, ended.checkpoint.state_dict()[name])


def test_a_validation_that_was_just_made_is_not_repeated_at_the_end() -> None:
    assert validated(fit(5, validation_period=trek.batches(5))) == [5]
