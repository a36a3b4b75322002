"""Validation data that is empty, or is so from the second time on, is told: before training where that can be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import trek
from trek.errors import InputError
from trek.testing.trials import PointsTrial, make_points

POINTS, LABELS = make_points(16)
BATCHES = [(POINTS[:8], LABELS[:8]), (POINTS[8:], LABELS[8:])]


class Restarts:
    """An iterator that starts again whenever it is iterated, as prefetching loaders are written."""

    def __iter__(self) -> Restarts:
        self._batches = iter(BATCHES)
        return self

    def __next__(self) -> Any:
        return next(self._batches)


class Once(IterableDataset[Any]):
    """Looks as if it could be read again."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = iter(batches)

    def __iter__(self) -> Iterator[Any]:
        return self._batches


def fit(data: Callable[[], Any], *, epochs: int = 3) -> list[int]:
    """Trains with validation data from `data`; the batches after which it was validated."""
    trained = []

    class Validated(PointsTrial):
        def build_validation_data_loader(self) -> Any:
            return data()

        def train_batch(self, batch: Any, model: Any, batch_idx: int) -> Any:
            trained.append(batch_idx)
            return super().train_batch(batch, model, batch_idx)

    hparams = {"global_batch_size": 8, "rows": 16}
    try:
        result = trek.fit(Validated, hparams=hparams, max_length=trek.epochs(epochs), show_progress=False)
    except InputError as error:
        raise InputError(f"{error} [after {len(trained)}]") from error
    return [row["batches"] for row in result.metrics if row["group"] == "validation"]


@pytest.mark.parametrize(
    "data",
    [
        lambda: (batch for batch in BATCHES),
        lambda: iter(BATCHES),
        lambda: map(tuple, BATCHES),
        lambda: zip(POINTS.split(8), LABELS.split(8), strict=True),  # type: ignore[no-untyped-call]
        lambda: trek.DataLoader(batch for batch in BATCHES),
    ],
    ids=["generator", "iterator", "map", "zip", "in a DataLoader"],
)
def test_data_that_can_be_read_only_once_is_refused_before_training(data: Callable[[], Any]) -> None:
    """Every validation after the first was empty, and nothing was said."""
    with pytest.raises(InputError, match=r"can be read only once.*\[after 0\]"):
        fit(data)


@pytest.mark.parametrize(
    "data",
    [
        list,
        lambda: trek.DataLoader((POINTS[:0], LABELS[:0]), 8),
        lambda: DataLoader(TensorDataset(POINTS[:0], LABELS[:0]), 8),
        lambda: DataLoader(TensorDataset(POINTS, LABELS), 32, drop_last=True),
        lambda: trek.DataLoader((POINTS, LABELS), 32, drop_last=True),
    ],
)
def test_empty_data_is_refused_before_training(data: Callable[[], Any]) -> None:
    """It was found after the first epoch, or not at all."""
    with pytest.raises(InputError, match=r"the validation data (has no batch|cannot be read: ).*\[after 0\]"):
        fit(data)


def test_data_that_turns_out_empty_is_told_at_that_validation() -> None:
    with pytest.raises(InputError, match=r"the validation data has no batch.*\[after 4\]"):
        fit(lambda: DataLoader(Once(BATCHES), batch_size=None))


@pytest.mark.parametrize("data", [lambda: BATCHES, Restarts, lambda: trek.DataLoader((POINTS, LABELS), 8)])
def test_data_that_can_be_read_again_is_read_at_every_validation(data: Callable[[], Any]) -> None:
    assert fit(data) == [2, 4, 6]


def test_a_loop_may_pass_new_data_to_every_validation_but_not_nothing() -> None:
    with trek.Traveler(world=trek.World(device_name="cpu"), show_progress=False) as tr:
        model = tr.add_model(torch.nn.Linear(6, 2))
        for _ in range(2):
            for points, _ in tr.validate(batch for batch in BATCHES):
                tr.log(mean=model(points).mean())
        with pytest.raises(InputError, match="the validation data has no batch"):
            list(tr.validate(iter(())))
