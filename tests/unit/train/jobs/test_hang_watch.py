"""A rank that holds the others up: what is found, by the stacks of all ranks, and what is not taken for a hang."""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import trek
from trek.train.jobs import hang_watch
from trek.train.jobs.hang_report import is_unhurried
from trek.train.jobs.hang_watch import HangWatch, Sighting, find_culprit

WAITS = Sighting(0, 7, "waiting in all_reduce (train.py:9 in train)", "all_reduce", False, "")
RUNS = replace(WAITS, place="at train.py:7 in train", collective="")


def ranks(*sightings: Sighting | None) -> dict[int, Sighting]:
    """Those of all ranks in order; None for a rank that posted nothing."""
    return {rank: replace(one, rank=rank) for rank, one in enumerate(sightings) if one is not None}


@pytest.mark.parametrize(
    ("sightings", "culprit"),
    [
        ((WAITS, None), "rank 1 does not answer: the process is stopped, or its machine cannot be reached"),
        ((WAITS, None, None), "ranks 1, 2 do not answer: the process is stopped, or its machine cannot be reached"),
        ((WAITS, RUNS, WAITS), "rank 1 is at train.py:7 in train; the other ranks wait for it"),
        (
            (WAITS, RUNS, RUNS),
            "rank 1 is at train.py:7 in train; rank 2 is at train.py:7 in train; the other ranks wait",
        ),
        ((RUNS, RUNS), "every rank is in its own code, and none waits for another"),
        ((WAITS, WAITS), "all ranks wait in all_reduce: the network between them may be broken"),
        (
            (WAITS, replace(WAITS, collective="broadcast"), WAITS),
            "ranks wait in different collectives, ranks 0, 2 in all_reduce and rank 1 in broadcast: all ranks must "
            "make the same calls in the same order",
        ),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(sightings: tuple[Sighting | None, ...], culprit: str) -> None:
    assert find_culprit(ranks(*sightings), size=len(sightings)) == culprit


def test_work_that_may_take_its_time_is_no_hang() -> None:
    busy = replace(RUNS, is_unhurried=True)
    assert find_culprit(ranks(WAITS, busy), size=2) == ""
    assert find_culprit(ranks(WAITS, busy, None), size=3) == ""


@pytest.mark.parametrize(
    ("folder", "name", "expected"),
    [
        (Path(torch.__file__).parent / "_dynamo", "compile_inner", True),
        (Path(torch.__file__).parent / "_inductor", "codegen", True),
        (Path(trek.__file__).parent / "train" / "checkpointing", "write", True),
        (Path(trek.__file__).parent / "train" / "loop", "train_batches", False),
        (Path("home"), "train", False),
    ],
)
def test_compiling_and_writing_may_take_their_time(folder: Path, name: str, expected: bool) -> None:
    frames = [traceback.FrameSummary("script.py", 3, "main"), traceback.FrameSummary(str(folder / "x.py"), 7, name)]
    assert is_unhurried(traceback.StackSummary.from_list(frames)) == expected


def _told(capsys: pytest.CaptureFixture[str], *, until_s: float = 240.0) -> str:
    said, deadline = "", time.monotonic() + until_s
    while not said and time.monotonic() < deadline:
        time.sleep(0.02)
        said = capsys.readouterr().err
    return said


def test_a_process_that_finishes_no_batch_reports_once_until_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    watch = HangWatch(trek.World(), hang_s=0.1)
    said = _told(capsys)
    assert said.startswith("trek: no batch was finished for 0.1 s: every rank is in its own code")
    assert "test_hang_watch.py" in said
    time.sleep(0.5)
    assert capsys.readouterr().err == ""
    watch.beat()
    assert "no batch was finished" in _told(capsys)
    watch.close()


def test_batches_that_are_finished_are_no_hang(capsys: pytest.CaptureFixture[str]) -> None:
    watch = HangWatch(trek.World(), hang_s=5.0)
    for _ in range(20):
        time.sleep(0.01)
        watch.beat()
    watch.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("on_hang", ["stop", "restart"])
def test_a_process_that_hangs_ends_itself_where_it_should(on_hang: hang_watch.OnHang) -> None:
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    watch = HangWatch(trek.World(), hang_s=0.1, on_hang=on_hang, end=end)
    assert ended.wait(60)
    watch.close()
    assert codes == [1]


def test_work_that_is_declared_to_take_its_time_is_never_reported(capsys: pytest.CaptureFixture[str]) -> None:
    watch = HangWatch(trek.World(), hang_s=0.1)
    with watch.unhurried():
        threading.Event().wait(1.0)
    assert capsys.readouterr().err == ""
    assert "no batch was finished" in _told(capsys), "what follows it is watched again"
    watch.close()
