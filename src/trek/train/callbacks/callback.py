"""Callback: hooks into a Trial's run, in the order they are called.

    on_trial_startup
      on_training_start
        on_training_epoch_start … on_training_workload_end … on_training_epoch_end
        on_validation_start, on_validation_epoch_start, on_validation_epoch_end, on_validation_end
        on_checkpoint_save_start, on_checkpoint_write_end, on_checkpoint_upload_end
    on_trial_shutdown

With a checkpoint to resume from, `on_checkpoint_load_start` comes before `on_trial_startup`. Hooks run on every rank
unless they say otherwise. At one boundary the order is: training metrics, validation, checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Callback:
    """Override what you need; every hook does nothing by default."""

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Everything is built and restored; training starts at `first_batch_idx`."""

    def on_trial_shutdown(self) -> None:
        """The run is over, well or not."""

    def on_training_start(self) -> None:
        """The first batch comes next."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """The first batch of an epoch comes next."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """The last batch of an epoch is done."""

    def on_training_workload_end(self, avg_metrics: dict[str, float], batch_metrics: list[dict[str, Any]]) -> None:
        """Training metrics were reported. `batch_metrics` is always empty: single batches are not synced."""

    def on_validation_start(self) -> None:
        """A validation begins."""

    def on_validation_epoch_start(self) -> None:
        """The first validation batch comes next."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """The last validation batch is done; `outputs` holds what `evaluate_batch` returned on this rank."""

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        """The metrics of a validation, reduced over ranks."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """The extra entries of a checkpoint, as `on_checkpoint_save_start` left them."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Add entries of your own to a checkpoint: plain values and tensors."""

    def on_checkpoint_write_end(self, checkpoint_dir: Path | str) -> None:
        """A checkpoint is complete, in a folder or at a URL; called on the leader."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """The same moment, by the checkpoint's name; called on the leader."""

    def state_dict(self) -> dict[str, Any]:
        """What to save with checkpoints and restore after a resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
