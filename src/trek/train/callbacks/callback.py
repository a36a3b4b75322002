"""Callback: hooks into a Trial's run, in the order they are called.

    on_trial_startup
      on_training_start
        on_training_epoch_start … on_before_optimizer_step, on_training_workload_end … on_training_epoch_end
        on_validation_start, on_validation_epoch_start, on_validation_epoch_end, on_validation_end
        on_checkpoint_save_start, on_checkpoint_write_end, on_checkpoint_upload_end
    on_trial_shutdown

If the run is resumed, `on_checkpoint_load_start` is called before `on_trial_startup`. Hooks are called on every rank
unless noted otherwise. If several are due after the same batch, the order is: training metrics, validation, checkpoint.
A checkpoint is written in the background: `on_checkpoint_write_end` comes between two batches, once it is complete.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from trek.errors import EntrypointError


class Callback:
    """Override the hooks you need; by default they do nothing."""

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Everything is built and restored; training starts at `first_batch_idx`."""

    def on_trial_shutdown(self) -> None:
        """The run has ended, successfully or not."""

    def on_training_start(self) -> None:
        """The first batch comes next."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """The first batch of an epoch comes next."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """The last batch of an epoch is done."""

    def on_before_optimizer_step(self, parameters: Sequence[nn.Parameter]) -> None:
        """An optimizer is going to step: the gradients of its parameters are averaged, unscaled and may be changed."""

    def on_training_workload_end(self, avg_metrics: dict[str, float], batch_metrics: list[dict[str, Any]]) -> None:
        """Training metrics were reported. `batch_metrics` is always empty: single batches are not synced."""

    def on_validation_start(self) -> None:
        """A validation begins."""

    def on_validation_epoch_start(self) -> None:
        """The first validation batch comes next."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """The last validation batch is done; `outputs` holds what `evaluate_batch` returned on this rank."""

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        """A validation has ended, with these metrics over all ranks."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is being loaded; `checkpoint` has the entries added by `on_checkpoint_save_start`."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is being saved; add entries (plain values and tensors) to `checkpoint`."""

    def on_checkpoint_write_end(self, checkpoint_dir: Path | str) -> None:
        """A checkpoint has been written to a folder or URL; called on the leader."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Called right after `on_checkpoint_write_end`, with the checkpoint's id; called on the leader."""

    def state_dict(self) -> dict[str, Any]:
        """The state of this callback to save in checkpoints."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore `state_dict`."""


def check_callback(name: str, callback: Any) -> None:
    """Raise `EntrypointError` unless all hooks of the callback `name` can be called as a run calls them."""
    if not isinstance(callback, Callback):
        raise EntrypointError(f"callback {name!r} is a {type(callback).__name__}. Make it a subclass of trek.Callback.")
    for hook in [one for one in vars(Callback) if one.startswith("on_")]:
        expected = list(inspect.signature(getattr(Callback, hook)).parameters)[1:]
        signature = inspect.signature(getattr(callback, hook))
        try:
            signature.bind(*expected)
        except TypeError:
            raise EntrypointError(
                f"{type(callback).__name__}.{hook} is called with ({', '.join(expected)}), but takes {signature}. "
                "Give it these parameters."
            ) from None
