"""A checkpoint is told of as soon as it is written, and a failed write as soon as it failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trek
from trek.errors import StorageError
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_writer import CheckpointWriter

SAVED, AWAITED = 3, 5


class Told(PointsTrial):
    """Waits in one batch until the checkpoint of an earlier one is written, and notes what is told when."""

    def __init__(self, context: trek.TrialContext) -> None:
        super().__init__(context)
        self.told_at: list[int] = []
        self.last = -1
        Told.made = self

    made: Told

    def build_callbacks(self) -> Any:
        trial = self

        class Notes(trek.Callback):
            def on_checkpoint_write_end(self, checkpoint_dir: Path | str) -> None:
                trial.told_at.append(trial.context.traveler.position.batches)

        return {"notes": Notes()}

    def train_batch(self, batch: Any, model: Any, batch_idx: int) -> Any:
        self.last = batch_idx + 1
        if self.last == AWAITED:
            writer = self.context.traveler.archive._writer
            assert writer is not None
            if writer._pending is not None:
                writer._pending.exception()
        return super().train_batch(batch, model, batch_idx)


def fit() -> None:
    trek.fit(
        Told,
        hparams={"global_batch_size": 8, "rows": 160},
        max_length=trek.batches(20),
        checkpoint_period=trek.batches(SAVED),
        validation_period=trek.batches(20),
        keep_last=99,
        show_progress=False,
    )


def test_a_checkpoint_is_told_before_the_next_one_is_saved() -> None:
    """Callbacks, loggers and the control plane used to hear of a checkpoint when the next one was saved."""
    fit()
    assert Told.made.told_at[0] in range(SAVED, AWAITED + 1)
    assert len(Told.made.told_at) == 7


def test_a_failed_write_ends_the_run_before_the_next_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training used to go on until the next save."""

    def fail(self: CheckpointWriter, snapshot: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(CheckpointWriter, "_write", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        fit()
    assert Told.made.last in range(SAVED, AWAITED + 1)
