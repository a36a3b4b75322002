"""Callbacks under the names of every version of Determined: they are called, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.compat.determined.pytorch import Batch, DataLoader, PyTorchCallback, PyTorchTrial
from trek.errors import InputError


class Line(PyTorchTrial):
    """The older spelling."""

    callback: Any = None

    def __init__(self, context: Any) -> None:
        self.context = context

    def build_model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def optimizer(self, model: nn.Module) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def build_callbacks(self) -> Any:
        return {"one": self.callback}

    def build_training_data_loader(self) -> Any:
        return DataLoader([(torch.ones(1), torch.ones(1))] * 32, batch_size=4)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        return {"loss": nn.functional.mse_loss(model(batch[0]), batch[1])}

    def evaluate_batch(self, batch: Any, model: Any) -> Any:
        return {"weight": model.weight.detach().abs().max()}


def fit(callback: PyTorchCallback, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Line, "callback", callback)
    return trek.fit(Line, max_length=Batch(16), show_progress=False)


class Older(PyTorchCallback):
    """Hooks of 0.12."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_before_optimizer_step(self, parameters: Any) -> None:
        nn.utils.clip_grad_norm_(parameters, 1e-6)
        self.calls.append("optimizer_step")

    def on_validation_step_start(self) -> None:
        self.calls.append("validation_start")

    def on_validation_step_end(self, metrics: dict[str, Any]) -> None:
        self.calls.append(f"validation_end {sorted(metrics)}")

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.calls.append("checkpoint_end")


def test_hooks_are_called_under_their_older_names(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = Older()
    result = fit(callback, monkeypatch)
    assert result.best["weight"] < 1e-4
    assert callback.calls.count("optimizer_step") == 16
    assert [one for one in callback.calls if one.startswith("validation")] == [
        "validation_start",
        "validation_end ['weight']",
    ] * 2
    assert "checkpoint_end" in callback.calls


def test_a_hook_that_would_never_be_called_is_refused() -> None:
    with pytest.raises(InputError, match=r"Steps\.on_train_step_end is not a hook .* Use on_training_workload_end"):

        class Steps(PyTorchCallback):
            def on_train_step_end(self, step_id: int, metrics: Any) -> None: ...

    class Helper:
        def on_batch_end(self) -> None: ...

    with pytest.raises(InputError, match=r"Mixed\.on_batch_end is not a hook .* Remove it, or give it another name"):

        class Mixed(PyTorchCallback, Helper): ...

    with pytest.raises(InputError, match="Twice has on_validation_end under its older name on_validation_step_end too"):

        class Twice(PyTorchCallback):
            def on_validation_end(self, metrics: Any) -> None: ...

            def on_validation_step_end(self, metrics: Any) -> None: ...


def test_an_epoch_may_start_without_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(FutureWarning, match=r"Old\.on_training_epoch_start\(\) without epoch_idx is deprecated"):

        class Old(PyTorchCallback):
            num_epochs = 0

            def on_training_epoch_start(self) -> None:  # type: ignore[override]
                self.num_epochs += 1

    class Older(Old):
        def on_training_epoch_start(self, epoch_idx: int) -> None:
            super().on_training_epoch_start()

    for kind in (Old, Older):
        callback = kind()
        fit(callback, monkeypatch)
        assert callback.num_epochs == 2
