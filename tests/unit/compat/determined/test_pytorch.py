"""Determined's PyTorchTrial in its later spelling, trained by `trek.fit` and by its own Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.compat.determined import InvalidHP, pytorch
from trek.errors import ConfigError, InputError

HPARAMS = {"global_batch_size": 8, "lr": 0.1}


class Recorder(pytorch.PyTorchCallback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.calls.append(f"startup {first_batch_idx} {checkpoint_uuid is not None}")

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        self.calls.append(f"validation {sorted(metrics)}")

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.calls.append(f"checkpoint {Path(checkpoint_dir).is_dir()}")


class TwoModels(pytorch.PyTorchTrial):
    """Two models with an optimizer each, as a GAN has, a scheduler, a reducer and callbacks."""

    recorder: ClassVar[Recorder]
    places: ClassVar[list[Any]] = []

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        rate = context.get_hparam("lr")
        if rate <= 0:
            raise InvalidHP("lr must be positive")
        self.first = context.wrap_model(nn.Linear(3, 2))
        self.second = context.wrap_model(nn.Linear(2, 1))
        self.opt1 = context.wrap_optimizer(torch.optim.SGD(self.first.parameters(), lr=rate))
        self.opt2 = context.wrap_optimizer(torch.optim.SGD(self.second.parameters(), lr=rate))
        self.sched = context.wrap_lr_scheduler(
            lr_scheduler=torch.optim.lr_scheduler.StepLR(self.opt1, 1, gamma=0.5),
            step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )
        self.largest = context.wrap_reducer(max, "largest", False)

    def build_training_data_loader(self) -> Any:
        rows = torch.linspace(-1, 1, 48).reshape(16, 3)
        data = [(row, row.sum().reshape(1)) for row in rows]
        return pytorch.DataLoader(data, batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        context = self.context
        loss = F.mse_loss(self.second(self.first(x)), y)
        context.backward(loss, retain_graph=True)
        context.step_optimizer(self.opt1, lambda params: nn.utils.clip_grad_norm_(params, 1.0), auto_zero_grads=True)
        context.step_optimizer(self.opt2)
        self.places.append(
            (
                context.current_train_epoch(),
                context.current_train_batch(),
                context.is_epoch_start(),
                context.is_epoch_end(),
            )
        )
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        self.largest.update(float(y.max()))
        return {"error": F.mse_loss(self.second(self.first(x)), y)}

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        type(self).recorder = Recorder()
        return {"recorder": self.recorder}

    def evaluation_reducer(self) -> Any:
        return pytorch.Reducer.MAX


def test_the_later_spelling_trains_under_fit() -> None:
    TwoModels.places.clear()
    result = trek.fit(TwoModels, hparams=HPARAMS, max_length=pytorch.Epoch(2), show_progress=False)
    assert TwoModels.places == [(0, 0, True, False), (0, 1, False, True), (1, 2, True, False), (1, 3, False, True)]
    validated = [row for row in result.metrics if row["group"] == "validation"]
    assert [row["largest"] for row in validated] == [pytest.approx(45 / 47 * 3 - 0.0, abs=0.2)] * 2
    assert TwoModels.recorder.calls[0] == "startup 0 False"
    assert "validation ['error', 'largest']" in TwoModels.recorder.calls
    assert "checkpoint True" in TwoModels.recorder.calls


def test_a_script_trains_its_trial_itself_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TwoModels.places.clear()
    with pytorch.init(hparams=HPARAMS, exp_conf={"data": {"a": 1}}) as context:
        assert context.get_data_config() == {"a": 1}
        assert (context.distributed.rank, context.distributed.size) == (0, 1)
        assert context.distributed.allgather("x") == ["x"]
        trainer = pytorch.Trainer(TwoModels(context), context)
        trainer.fit(max_length=pytorch.Batch(3), validation_period=pytorch.Batch(2), reporting_period=pytorch.Batch(1))
    assert len(TwoModels.places) == 3
    saved = max(Path("checkpoints").iterdir())
    with pytorch.init(hparams=HPARAMS) as context:
        trainer = pytorch.Trainer(TwoModels(context), context)
        trainer.fit(max_length=pytorch.Batch(4), latest_checkpoint=str(saved))
    assert len(TwoModels.places) == 4
    assert TwoModels.recorder.calls[0] == "startup 3 True"


def test_mode_for_tests_trains_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TwoModels.places.clear()
    with pytorch.init(hparams=HPARAMS) as context:
        pytorch.Trainer(TwoModels(context), context).fit(test_mode=True)
    assert len(TwoModels.places) == 1


def test_mistakes_get_the_errors_of_trek(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytorch.init(hparams=HPARAMS) as context:
        trial = TwoModels(context)
        with pytest.raises(ConfigError, match="fit needs a max_length"):
            pytorch.Trainer(trial, context).fit()
        with pytest.raises(ConfigError, match=r"backward_passes_per_step must be .*, got 4"):
            context.wrap_optimizer(trial.opt1, backward_passes_per_step=4)
        with pytest.raises(InputError, match="scaler that was not wrapped"):
            context.step_optimizer(trial.opt1, scaler=object())
        with pytest.raises(ConfigError, match="hyperparameter 'nothing' not found"):
            context.get_hparam("nothing")


def test_a_context_has_the_attributes_of_determineds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytorch.init(hparams=HPARAMS) as context:
        context.experimental.disable_dataset_reproducibility_checks()
        context.experimental.disable_auto_to_device()
        trial = TwoModels(context)
        assert context.models == [trial.first, trial.second]
        assert context.optimizers == [trial.opt1, trial.opt2]
        assert context.lr_schedulers == [trial.sched] == [context.get_lr_scheduler()]
        assert (context.get_initial_batch(), context.get_enable_tensorboard_logging()) == (0, False)
        assert (context.distributed.cross_rank, context.distributed.cross_size) == (0, 1)
        assert (context.distributed.rank, context.distributed.get_num_agents()) == (0, 1)
        assert context.distributed.allgather_local("x") == context.distributed.gather_local("x") == ["x"]
        assert context.distributed.broadcast_local("x") == "x"
        with pytest.raises(InputError, match="the trial has 2 models"):
            context.get_model()
        with pytest.raises(ConfigError, match=r"use_amp needs mixed precision\. Set training\.precision"):
            context.experimental.use_amp()
        with pytest.raises(ConfigError, match="configure_apex_amp is not supported"):
            context.configure_apex_amp(context.models, context.optimizers)
        with pytest.raises(ConfigError, match="cannot switch on the profiler"):
            context.set_profiler()
    with pytorch.init(hparams=HPARAMS, enable_tensorboard_logging=True) as context:
        assert context.get_enable_tensorboard_logging()


def test_a_forward_pass_runs_in_mixed_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[torch.dtype] = []

    class Dict(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            seen.append(super().forward(x).dtype)
            return {"out": (super().forward(x), 1)}

    with pytorch.init(hparams=HPARAMS) as context:
        model = context.wrap_model(context.autocast_forward_pass(Dict(2, 2)))
        out, one = model(torch.ones(1, 2))["out"]
        assert context.get_model() is model
    assert (seen, out.dtype, one) == ([torch.bfloat16], torch.float32, 1)
    assert set(model.state_dict()) == {"weight", "bias"}


class Tutorial(pytorch.PyTorchTrial):
    """The old spelling, with a scheduler and its step mode."""

    rates: ClassVar[list[float]] = []

    def __init__(self, context: Any) -> None:
        self.context = context

    def build_model(self) -> nn.Module:
        model = nn.Linear(3, 1)
        pytorch.reset_parameters(model)
        return model

    def optimizer(self, model: nn.Module) -> Any:
        self.opt = torch.optim.SGD(model.parameters(), lr=1.0)
        return self.opt

    def create_lr_scheduler(self, optimizer: Any) -> Any:
        decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return pytorch.LRScheduler(decay, step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        self.rates.append(self.opt.param_groups[0]["lr"])
        return {"loss": F.mse_loss(model(batch[0]), batch[1])}

    def evaluate_full_dataset(self, data_loader: Any, model: nn.Module) -> Any:
        return {"error": sum(float(F.mse_loss(model(x), y)) for x, y in data_loader)}

    build_training_data_loader = TwoModels.build_training_data_loader
    build_validation_data_loader = TwoModels.build_validation_data_loader


def test_the_old_spelling_steps_the_scheduler_by_its_mode() -> None:
    result = trek.fit(Tutorial, hparams=HPARAMS, max_length=pytorch.Record(24), show_progress=False)
    assert Tutorial.rates == [1.0, 0.5, 0.25]
    assert result.best is not None
