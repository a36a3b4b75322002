"""The small parts of a run, each on its own: goal, schedule, length, table of epochs, pace, lookout, folders."""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trek
from trek.data.loaders import DataLoader, as_loader
from trek.engines.member_folder import ANSWER, MemberFolder
from trek.errors import ConfigError, InputError, NotFound
from trek.train.folders import new_run_folder, open_run_folder
from trek.train.jobs.hang_report import Lookout, note_error
from trek.train.length import Length
from trek.train.loop.pace import Pace
from trek.train.loop.position import Position
from trek.train.loop.schedule import Schedule
from trek.train.metrics.epoch_table import EpochTable, format_duration
from trek.train.metrics.goal import Goal
from trek.world import World

# -- goal


@pytest.mark.parametrize(
    ("metrics", "chosen", "score"),
    [
        ({"accuracy": 0.9, "validation_loss": 0.3}, "validation_loss", 0.3),
        ({"accuracy": 0.9}, "accuracy", -0.9),
        ({"val_auc": 0.8}, "val_auc", -0.8),
        ({"mape": 0.2}, "mape", 0.2),
        ({"mAP": 0.2}, "mAP", -0.2),
        ({"accuracy_error": 0.2}, "accuracy_error", 0.2),
        ({"perplexity": 7.0}, "perplexity", 7.0),
        ({"loss": math.nan}, "loss", None),
        ({}, None, None),
    ],
)
def test_a_goal_finds_its_metric_and_direction(metrics: dict[str, float], chosen: str, score: float | None) -> None:
    assert Goal().choose(metrics) == chosen
    assert Goal().score(metrics) == score


def test_a_goal_that_was_told_takes_nothing_else() -> None:
    assert Goal("accuracy", smaller_is_better=True).score({"accuracy": 0.9, "loss": 0.1}) == 0.9
    with pytest.raises(ConfigError, match="'f1' not found in the validation metrics: accuracy, loss"):
        Goal("f1").score({"loss": 1.0, "accuracy": 0.5})


# -- lengths and schedules


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "3"])
def test_a_length_is_a_whole_number(count: Any) -> None:
    with pytest.raises(InputError, match="whole number of batches, at least 1"):
        trek.batches(count)


def test_lengths_read_as_people_say_them() -> None:
    assert [str(x) for x in (trek.batches(1), trek.records(2), trek.epochs(1))] == ["1 batch", "2 records", "1 epoch"]


LOADER = as_loader(DataLoader((torch.arange(10),), 4), world=World(), seed=0)


@given(period=st.integers(1, 7), batches=st.integers(0, 40))
def test_the_next_batch_is_the_first_later_one_that_is_due(period: int, batches: int) -> None:
    schedule = Schedule.of(trek.batches(period), LOADER)
    coming = schedule.next_batch(Position(batches=batches))
    due = [b for b in range(batches + 1, batches + 10) if schedule.is_due(Position(batches=b))]
    assert coming == due[0]


@pytest.mark.parametrize(
    ("length", "records_per_epoch", "expected"),
    [
        (trek.records(9), None, Schedule(batches=3)),
        (trek.epochs(2), None, Schedule(epochs=2)),
        (trek.epochs(2), 20, Schedule(batches=10)),
        (None, None, Schedule()),
    ],
)
def test_lengths_become_batches_of_the_data(
    length: Length | None, records_per_epoch: int | None, expected: Schedule
) -> None:
    assert Schedule.of(length, LOADER, records_per_epoch=records_per_epoch) == expected


def test_epochs_are_due_at_their_end_and_nothing_is_due_without_a_period() -> None:
    every_second = Schedule(epochs=2)
    assert [every_second.is_due(Position(epoch=e, epoch_batch=b)) for e, b in [(1, 0), (2, 0), (2, 1)]] == [
        False,
        True,
        False,
    ]
    assert Schedule().next_batch(Position()) == math.inf
    assert not Schedule().is_due(Position())


def test_progress_is_the_share_that_is_done() -> None:
    assert Schedule(batches=8).progress(Position(batches=2), epoch_batches=3) == 0.25
    assert Schedule(epochs=2).progress(Position(epoch=1, epoch_batch=2), epoch_batches=4) == 0.75
    assert Schedule(epochs=2).progress(Position(epoch=1, epoch_batch=2), epoch_batches=None) == 0.5


def test_records_of_a_stream_without_a_batch_size_cannot_be_counted_ahead() -> None:
    stream = as_loader([torch.zeros(2)], world=World(), seed=0)
    with pytest.raises(
        InputError, match=r"5 records requires data with a known batch size\. Give the length in batches"
    ):
        Schedule.of(trek.records(5), stream)


# -- the table of epochs


def test_the_table_has_a_row_per_epoch_and_times_as_people_read_them() -> None:
    table = EpochTable()
    table.end_epoch(0, {"loss": 0.6435}, duration_s=303.0)
    table.add_validation(0, {"validation_loss": 0.5}, duration_s=4.0)
    table.end_epoch(1, {"loss": 0.5}, duration_s=3723.0)
    again = EpochTable()
    again.load_state_dict(table.state_dict())
    frame = again.to_pandas()
    assert list(frame.columns) == ["epoch", "train_loss", "valid_loss", "time"]
    assert list(frame["time"]) == ["05:07", "1:02:03"]
    first, second = frame["valid_loss"]
    assert first == 0.5
    assert math.isnan(second)


@given(st.integers(0, 10**6))
def test_a_clock_loses_no_second(seconds: int) -> None:
    total = 0
    for part in format_duration(seconds).split(":"):
        total = total * 60 + int(part)
    assert total == seconds


# -- pace


def pace_says(*, sync_ms: float, step_ms: float, caplog: pytest.LogCaptureFixture, rank: int = 0) -> list[str]:
    now = [0.0]
    pace = Pace(World(rank=rank, size=2, local_rank=rank, local_size=2), clock=lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            if pace.is_measuring:
                pace.add_sync(sync_ms / 1e3)
            now[0] += step_ms / 1e3
    return [record.getMessage() for record in caplog.records]


def test_processes_that_train_slower_than_one_would_are_told_once_with_figures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (said,) = pace_says(sync_ms=3.0, step_ms=4.0, caplog=caplog)
    assert "2 processes are slower than one for this model" in said
    assert (
        "a step takes 4.00 ms, of which 3.00 ms are spent on syncing gradients; one process would need at most 2.00 ms"
        in said
    )


@pytest.mark.parametrize(("sync_ms", "rank"), [(1.0, 0), (3.0, 1)])
def test_processes_that_pay_and_other_ranks_say_nothing(
    sync_ms: float, rank: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert pace_says(sync_ms=sync_ms, step_ms=4.0, caplog=caplog, rank=rank) == []


@pytest.mark.parametrize(("own_ms", "named"), [(5.0, True), (3.9, False), (2.0, False)])
def test_a_rank_that_takes_twice_as_long_as_the_others_is_named(
    own_ms: float, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    world = World(rank=0, size=3, local_rank=0, local_size=3, device_name="cpu")
    others = (2.0 * 60 / 1e3, own_ms * 60 / 1e3)
    pace = Pace(world, gather=lambda own: [own, *others], clock=lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            if pace.is_measuring:
                pace.add_sync((own_ms - 2.0) / 1e3)
            now[0] += own_ms / 1e3
    said = [record.getMessage() for record in caplog.records if "wait for" in record.getMessage()]
    assert bool(said) == named
    assert all("rank 2: its own part of a step takes 5.00 ms, the median rank's 2.00 ms" in one for one in said)


def test_one_process_is_never_measured() -> None:
    assert not Pace(World()).is_measuring


# -- lookout


def test_a_rank_answers_when_it_is_asked(tmp_path: Path) -> None:
    note_error(None)  # an earlier run may have failed, which is what a rank answers first
    folder = MemberFolder(tmp_path)
    lookout = Lookout(folder)
    folder.ask()
    deadline = time.monotonic() + 240
    while (answer := folder.read(ANSWER)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "test_parts.py" in json.loads(answer)["where"]
    lookout.close()


# -- folders


def test_no_runs_folder_is_written_over_and_a_resume_takes_the_last(home: Path) -> None:
    runs = home / "runs"
    assert [new_run_folder("a"), new_run_folder("a"), new_run_folder("b")] == [runs / "a", runs / "a-2", runs / "b"]
    assert new_run_folder("a", is_resumed=True) == runs / "a-2"


def test_a_resume_of_a_run_that_does_not_exist_is_refused() -> None:
    """It used to train from the beginning, and said nothing of a misspelt name."""
    new_run_folder("digits")
    with pytest.raises(NotFound, match=r"resume='latest' found no run named 'digit' in .*Check the name"):
        new_run_folder("digit", is_resumed=True)


def test_of_processes_started_together_only_the_leader_makes_a_folder(home: Path) -> None:
    leader, other = (World(rank=rank, size=2, local_rank=rank, local_size=2) for rank in (0, 1))
    assert open_run_folder("a", world=leader, is_resumed=False) == home / "runs" / "a"
    assert open_run_folder("a", world=other, is_resumed=False) is None
    assert [path.name for path in (home / "runs").iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a\0b", "x" * 300, "ä" * 120])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the name of a run becomes a folder name"):
        new_run_folder(name)
