"""Resume from the checkpoint of every batch: weights, optimizer, generators, metrics and rows are those of one run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trek
from trek.testing.resuming import DATA, SCHEDULERS, ResumedTrial, differences, saved_state
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.result import Result


def fit(hparams: dict[str, Any], **settings: Any) -> Result:
    ResumedTrial.rows = []
    return trek.fit(
        ResumedTrial,
        hparams={"global_batch_size": 4, **hparams},
        max_length=trek.epochs(2),
        validation_period=trek.batches(5),
        report_period=3,
        show_progress=False,
        **{"checkpoint_policy": "none", **settings},
    )


def told(result: Result, *, after: int = 0) -> list[dict[str, Any]]:
    """What the run reported after a batch, but for how fast it was."""
    rows = [
        {name: value for name, value in row.items() if name not in ("records_per_s", "data_wait")}
        for row in result.metrics
    ]
    return sorted((row for row in rows if row["batches"] > after), key=lambda row: (row["batches"], row["group"]))


def check_every_batch(hparams: dict[str, Any], *, at: slice = slice(None), **settings: Any) -> None:
    unsaved = fit(hparams, **settings)
    rows = ResumedTrial.rows
    whole = fit(hparams, checkpoint_period=trek.batches(1), keep_last=99, **settings)
    assert ResumedTrial.rows == rows
    assert told(whole) == told(unsaved), "saving must not change training"
    checkpoints = sorted((whole.path / "checkpoints").iterdir())
    assert unsaved.checkpoint is not None
    expected = saved_state(unsaved.checkpoint.path)
    for saved in checkpoints[at]:
        resumed = fit(hparams, resume=saved, **settings)
        done = CheckpointFolder(saved).batches
        assert ResumedTrial.rows == rows[done:], f"rows after batch {done}"
        assert told(resumed, after=done) == told(whole, after=done), f"metrics after batch {done}"
        assert resumed.checkpoint is not None
        assert not list(differences(saved_state(resumed.checkpoint.path), expected)), f"state after batch {done}"


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.sampled_from(DATA),
    scheduler=st.sampled_from(SCHEDULERS),
    accumulate=st.integers(1, 3),
    adam=st.booleans(),
)
def test_a_run_resumed_after_any_batch_is_the_run_that_never_stopped(
    data: str, scheduler: str, accumulate: int, adam: bool
) -> None:
    check_every_batch({"data": data, "scheduler": scheduler, "adam": adam}, accumulate=accumulate)


@pytest.mark.parametrize("data", DATA)
def test_every_kind_of_data_is_resumed_to_the_bit(data: str) -> None:
    """Samplers with a generator of their own used to read other rows, and a stream other random numbers."""
    check_every_batch({"data": data, "scheduler": "batch"}, at=slice(1, None, 3), accumulate=3)


@pytest.mark.parametrize("data", ["numpy", "own_noise", "stream"])
def test_worker_processes_of_a_loader_change_nothing_about_a_resume(data: str) -> None:
    check_every_batch({"data": data, "num_workers": 2}, at=slice(2, 9, 5))
