"""What only a GPU can show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.errors import ConfigError, InputError
from trek.testing.trials import PointsTrial

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
pytestmark = pytest.mark.gpu
HPARAMS = {"global_batch_size": 16, "rows": 200, "momentum": 0.9}


class WaitingTrial(PointsTrial):
    """Waits for the device in every step."""

    def train_batch(self, batch: Any, model: nn.Module, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, model, batch_idx)
        return {**metrics, "seen": metrics["loss"].item()}


def weights(**settings: Any) -> dict[str, torch.Tensor]:
    trial = settings.pop("trial", PointsTrial)
    hparams = {**HPARAMS, **settings.pop("hparams", {})}
    result = trek.fit(trial, hparams=hparams, max_length=trek.epochs(3), show_progress=False, **settings)
    assert result.checkpoint is not None
    return result.checkpoint.state_dict()


@needs_gpu
def test_a_captured_step_trains_what_an_eager_one_does() -> None:
    captured, eager = weights(capture=True, seed=3), weights(seed=3)
    for name, value in captured.items():
        torch.testing.assert_close(value, eager[name], rtol=1e-5, atol=1e-6)


class MovingRate(PointsTrial):
    """A learning rate that moves with every step, by the optimizer that is asked for."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        kind = getattr(torch.optim, self.context.get_hparam("optimizer"))
        made: torch.optim.Optimizer = kind(model.parameters(), lr=0.05)
        return made

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50), "step"


class CyclingMomentum(PointsTrial):
    """A schedule that moves the momentum with every step."""

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2000), "step"


@needs_gpu
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_a_captured_step_follows_a_rate_that_moves(optimizer: str, accumulate: int) -> None:
    settings: dict[str, Any] = {"trial": MovingRate, "hparams": {"optimizer": optimizer}, "accumulate": accumulate}
    captured, eager = weights(capture=True, **settings), weights(**settings)
    for name, value in captured.items():
        torch.testing.assert_close(value, eager[name], rtol=2e-4, atol=2e-5)


@needs_gpu
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_captured_run_that_stopped_goes_on_to_the_bit(accumulate: int) -> None:
    hparams = {**HPARAMS, "optimizer": "AdamW"}
    settings: dict[str, Any] = {"hparams": hparams, "capture": True, "show_progress": False, "accumulate": accumulate}
    whole = trek.fit(MovingRate, max_length=trek.epochs(3), name="whole", **settings)
    trek.fit(MovingRate, max_length=trek.batches(20), name="part", **settings)
    resumed = trek.fit(MovingRate, max_length=trek.epochs(3), name="part", resume="latest", **settings)
    assert whole.checkpoint is not None
    assert resumed.checkpoint is not None
    expected = whole.checkpoint.state_dict()
    for name, value in resumed.checkpoint.state_dict().items():
        assert torch.equal(value, expected[name]), name


@needs_gpu
def test_a_schedule_that_moves_what_a_recording_repeats_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match="cycle_momentum=False"):
        weights(trial=CyclingMomentum, capture=True, hparams={"rows": 2000})


@needs_gpu
def test_the_gpu_trains_what_the_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = weights()
    monkeypatch.setenv("TREK_DEVICE", "cpu")
    for name, value in weights().items():
        torch.testing.assert_close(value, on_gpu[name], rtol=1e-3, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("data", ["mapped", "stream"])
def test_data_on_the_host_reaches_the_gpu(data: str) -> None:
    assert weights(hparams={"data": data, "num_workers": 2 if data == "mapped" else 0})


@needs_gpu
def test_a_step_that_waits_for_the_device_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match="cannot be captured"):
        weights(trial=WaitingTrial, capture=True)


@needs_gpu
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_autocast_on_the_gpu_trains(precision: str) -> None:
    class Falls(PointsTrial):
        def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
            points, labels = batch
            return {"validation_loss": F.cross_entropy(model(points), labels)}

    hparams = {**HPARAMS, "rows": 2000}
    result = trek.fit(Falls, hparams=hparams, max_length=trek.epochs(3), precision=precision, show_progress=False)
    assert result.best is not None
    assert result.best["validation_loss"] < 0.4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_capture_without_a_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a GPU"):
        weights(capture=True)
