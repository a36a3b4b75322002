"""A learning rate and a batch size from a few steps that leave no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import ConfigError, EntrypointError, InputError
from trek.testing.trials import PointsTrial
from trek.train.callbacks.callback import Callback

HPARAMS = {"global_batch_size": 16, "rows": 200}


class Valley(trek.Trial):
    """A parabola of curvature 1: SGD falls fastest below a rate of 1 and runs away above 2."""

    def build_model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(model.weight, 10.0)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5, cycle_momentum=False), "step"

    def build_training_data_loader(self) -> Any:
        return [torch.ones(2, 1, dtype=torch.float64)] * 7

    def build_validation_data_loader(self) -> Any:
        return [torch.ones(2, 1, dtype=torch.float64)]

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"loss": 0.5 * model(batch).square().mean() + 1.0}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        raise AssertionError("a finder validates nothing")

    def build_callbacks(self) -> dict[str, Callback]:
        class Refusing(Callback):
            def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
                raise AssertionError("a finder calls no callbacks")

        return {"refusing": Refusing()}


def test_the_rates_grow_evenly_and_the_sweep_ends_when_the_loss_runs_away() -> None:
    found = trek.find_learning_rate(Valley, hparams={}, min_lr=1e-4, max_lr=100.0, num_batches=60)
    factor = (100.0 / 1e-4) ** (1 / 59)
    assert found.rates == pytest.approx([1e-4 * factor**i for i in range(len(found.rates))])
    assert 2.0 < found.rates[-1] < 50.0
    assert 0.01 < found.suggestion < 2.0
    assert found.losses[-1] > 4 * min(found.losses)


def test_a_sweep_that_never_runs_away_takes_all_its_batches() -> None:
    found = trek.find_learning_rate(Valley, hparams={}, min_lr=1e-5, max_lr=1e-3, num_batches=20)
    assert len(found.rates) == len(found.losses) == 20
    assert found.rates[-1] == pytest.approx(1e-3)


def test_a_sweep_leaves_no_trace_and_gives_a_table_and_a_picture(home: Path, tmp_path: Path) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    found = trek.find_learning_rate(PointsTrial, hparams=HPARAMS, num_batches=30)
    assert torch.equal(before, torch.get_rng_state())
    assert not home.exists()
    assert list(found.to_pandas().columns) == ["learning_rate", "loss"]
    found.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert trek.find_learning_rate(PointsTrial, hparams=HPARAMS, num_batches=30).losses == found.losses
    assert trek.find_learning_rate(PointsTrial, hparams=HPARAMS, num_batches=30, seed=1).losses != found.losses


class Limited(PointsTrial):
    """Runs out of memory, in one of the ways there are, above a batch of 50."""

    tried: list[int] = []  # noqa: RUF012 - what the test looks at

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            self.tried.append(self.context.get_global_batch_size())
        if len(batch[0]) > 50:
            raise self.context.get_hparam("error")
        return super().train_batch(batch, model, batch_idx)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        MemoryError(),
    ],
)
def test_the_batch_doubles_until_memory_ends(error: Exception) -> None:
    Limited.tried.clear()
    found = trek.find_batch_size(Limited, hparams={"rows": 400, "error": error}, start=4)
    assert found == 32
    assert Limited.tried == [4, 8, 16, 32, 64]


def test_the_batch_doubles_until_it_holds_all_data_or_the_limit() -> None:
    assert trek.find_batch_size(PointsTrial, hparams={"rows": 100}, start=10) == 160
    assert trek.find_batch_size(PointsTrial, hparams={"rows": 100}, start=10, limit=50) == 40


def test_another_error_than_memory_is_the_callers_to_see() -> None:
    with pytest.raises(RuntimeError, match="my own mistake"):
        trek.find_batch_size(Limited, hparams={"rows": 400, "error": RuntimeError("my own mistake")}, start=64)


@pytest.mark.parametrize(
    ("search", "error", "message"),
    [
        (lambda: trek.find_learning_rate(Valley, hparams={}, min_lr=0.0), ConfigError, "got 0.0 to 10.0"),
        (lambda: trek.find_learning_rate(Valley, hparams={}, min_lr=1, max_lr=0.1), ConfigError, "got 1 to 0.1"),
        (lambda: trek.find_learning_rate(Valley, hparams={}, num_batches=1), ConfigError, "at least 2 batches, got 1"),
        (lambda: trek.find_learning_rate(nn.Linear, hparams={}), EntrypointError, "is not a Trial"),  # type: ignore[arg-type]
        (
            lambda: trek.find_learning_rate(Valley, hparams={}, min_lr=1e300, max_lr=1e301),
            InputError,
            "the loss was (inf|nan) from the start",
        ),
        (lambda: trek.find_batch_size(PointsTrial, hparams={}, start=0), ConfigError, "got 0 to 65536"),
        (
            lambda: trek.find_batch_size(Limited, hparams={"rows": 99, "error": MemoryError()}, start=64),
            InputError,
            "a batch of 64 does not fit into memory",
        ),
    ],
)
def test_a_search_that_cannot_be_is_refused(search: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        search()
