"""Hooks are called in the documented order, and what callbacks hold comes back with a resume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import ConfigError, EntrypointError
from trek.testing.trials import PointsTrial
from trek.train.callbacks.callback import Callback
from trek.train.callbacks.early_stopping import EarlyStopping
from trek.train.result import Result

Call = tuple[Any, ...]


class Recorder(Callback):
    """Writes down every hook, and counts epochs over resumes."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.epochs = 0
        self.loaded: dict[str, Any] = {}
        self.paths: list[Any] = []

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.calls.append(("trial_startup", first_batch_idx, checkpoint_uuid is not None))

    def on_trial_shutdown(self) -> None:
        self.calls.append(("trial_shutdown",))

    def on_training_start(self) -> None:
        self.calls.append(("training_start",))

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.calls.append(("epoch_start", epoch_idx))

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.epochs += 1
        self.calls.append(("epoch_end", epoch_idx))

    def on_training_workload_end(self, avg_metrics: dict[str, float], batch_metrics: list[dict[str, Any]]) -> None:
        assert set(avg_metrics) == {"loss"}
        assert batch_metrics == []
        self.calls.append(("workload_end",))

    def on_validation_start(self) -> None:
        self.calls.append(("validation_start",))

    def on_validation_epoch_start(self) -> None:
        self.calls.append(("validation_epoch_start",))

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        assert [set(output) for output in outputs] == [{"validation_loss", "accuracy"}] * 4
        self.calls.append(("validation_epoch_end",))

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        assert set(metrics) == {"validation_loss", "accuracy"}
        self.calls.append(("validation_end",))

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        self.loaded = checkpoint
        self.calls.append(("checkpoint_load_start",))

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["words"] = ["one", torch.tensor([2])]
        self.calls.append(("checkpoint_save_start",))

    def on_checkpoint_write_end(self, checkpoint_dir: Path | str) -> None:
        self.paths.append(checkpoint_dir)
        self.calls.append(("checkpoint_write_end",))

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        assert trek.Checkpoint(self.paths[-1]).uuid == uuid
        self.calls.append(("checkpoint_upload_end",))

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs = state_dict["epochs"]


def fit(callback: Any, **settings: Any) -> Result:
    class Watched(PointsTrial):
        def build_callbacks(self) -> dict[str, Callback]:
            return {"callback": callback(self.context) if isinstance(callback, type) else callback}

    hparams = {"global_batch_size": 10, "rows": 20, **settings.pop("hparams", {})}
    options: dict[str, Any] = {"max_length": trek.epochs(2), "name": "run", "show_progress": False, **settings}
    return trek.fit(Watched, hparams=hparams, **options)


VALIDATION = [("validation_start",), ("validation_epoch_start",), ("validation_epoch_end",), ("validation_end",)]
SAVED = [("checkpoint_save_start",)]
WRITTEN = [("checkpoint_write_end",), ("checkpoint_upload_end",)]


def test_hooks_come_in_the_documented_order() -> None:
    recorder = Recorder()
    fit(recorder, metric="validation_loss", smaller_is_better=True, keep_best=0)
    assert [call for call in recorder.calls if call not in WRITTEN] == [
        ("trial_startup", 0, False),
        ("training_start",),
        ("epoch_start", 0),
        ("workload_end",),
        ("epoch_end", 0),
        *VALIDATION,
        ("checkpoint_save_start",),
        ("epoch_start", 1),
        ("workload_end",),
        ("epoch_end", 1),
        *VALIDATION,
        ("checkpoint_save_start",),
        ("trial_shutdown",),
    ]
    # Writing ends when it ends, but before the next is written, and before the run has ended.
    about = [call for call in recorder.calls if "checkpoint" in call[0]]
    assert about in ([*SAVED, *WRITTEN, *SAVED, *WRITTEN], [*SAVED, *SAVED, *WRITTEN, *WRITTEN])
    assert recorder.calls[-1] == ("trial_shutdown",)
    assert all(isinstance(path, Path) for path in recorder.paths)


def test_after_a_resume_loading_comes_first_and_the_epoch_is_not_started_again() -> None:
    first, second = Recorder(), Recorder()
    fit(first, hparams={"stop_at": 3})
    assert [call for call in first.calls if call in WRITTEN] == [*WRITTEN, *WRITTEN]
    assert [call for call in first.calls if call not in WRITTEN][-2:] == [*SAVED, ("trial_shutdown",)]
    fit(second, resume="latest")
    assert second.calls[:3] == [("checkpoint_load_start",), ("trial_startup", 3, True), ("training_start",)]
    assert second.calls[3:5] == [("workload_end",), ("epoch_end", 1)]
    assert second.epochs == 2
    assert second.loaded["words"] == ["one", torch.tensor([2])]


def test_shutdown_is_called_when_training_fails() -> None:
    class Failing(Recorder):
        def on_training_epoch_end(self, epoch_idx: int) -> None:
            raise RuntimeError("the callback's own mistake")

    recorder = Failing()
    with pytest.raises(RuntimeError, match="the callback's own mistake"):
        fit(recorder)
    assert recorder.calls[-1] == ("trial_shutdown",)


def test_an_initial_validation_comes_before_the_first_epoch() -> None:
    recorder = Recorder()
    result = fit(recorder, initial_validation=True)
    assert recorder.calls[2:7] == [*VALIDATION, ("epoch_start", 0)]
    assert [row["batches"] for row in result.metrics if row["group"] == "validation"] == [0, 2, 4]


class Scripted(EarlyStopping):
    """Early stopping that sees given values instead of what was measured."""

    values = (0.5, 0.3, 0.4, 0.2999, 0.9, 0.9, 0.9)

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context, metric="loss", patience=2, min_delta=0.01)
        self._epoch = 0

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        super().on_validation_end({"loss": self.values[self._epoch]})
        self._epoch += 1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._epoch = state_dict["epoch"]


def test_a_run_that_gets_no_better_stops_at_once_and_says_why() -> None:
    result = fit(Scripted, max_length=trek.epochs(9))
    assert result.stop_reason == "early_stopping"
    assert len(result.epochs) == 4  # 0.4 and 0.2999 are no improvement on 0.3 by 0.01
    assert result.checkpoint is not None
    assert result.checkpoint.batches == 8


def test_early_stopping_remembers_over_a_resume() -> None:
    stopped = fit(Scripted, max_length=trek.epochs(9), hparams={"stop_at": 7})
    assert stopped.stop_reason == "preempted"
    assert len(fit(Scripted, max_length=trek.epochs(9), resume="latest").epochs) == 4


def test_a_patience_of_nothing_is_refused() -> None:
    class Impatient(EarlyStopping):
        def __init__(self, context: trek.TrialContext) -> None:
            super().__init__(context, patience=0)

    with pytest.raises(ConfigError, match="patience must be at least 1 validation, got 0"):
        fit(Impatient)


class Clipping(Callback):
    """Sees the gradients before each step, and takes them away."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_before_optimizer_step(self, parameters: Sequence[nn.Parameter]) -> None:
        self.norms.append(float(nn.utils.clip_grad_norm_(parameters, 1e-9)))


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}, {"clip_norm": 0.01}, {"workers": 2}])
def test_gradients_may_be_changed_before_each_step(settings: dict[str, Any]) -> None:
    callback = Clipping()
    result = fit(callback, **settings)
    first, last = (row["validation_loss"] for row in result.metrics if row["group"] == "validation")
    assert first == pytest.approx(last, abs=1e-6)
    if "workers" not in settings:  # the callback is another object in another process
        assert len(callback.norms) == 4 // settings.get("accumulate", 1)
        assert max(callback.norms) <= settings.get("clip_norm", 100) * 1.001
        assert min(callback.norms) > 1e-6


class Mistaken(Callback):
    """Takes too little."""

    def on_validation_end(self) -> None:  # type: ignore[override]
        pass


def test_callbacks_that_cannot_be_called_are_refused_before_training() -> None:
    with pytest.raises(
        EntrypointError, match=r"Mistaken\.on_validation_end is called with \(metrics\), but takes \(\)"
    ):
        fit(Mistaken())
    with pytest.raises(EntrypointError, match=r"callback 'callback' is a dict\. Make it a subclass of trek\.Callback"):
        fit({})
