"""What the end of a gang means: pure decisions, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trek.control.trials.endings import Ending, Next, Standing, decide, failure_of, read_ending
from trek.engines import Exit
from trek.train.jobs.rank_outcome import RankOutcome

STANDING = Standing(wanted="run", restarts=0, max_restarts=2, has_new_checkpoint=False)


def exit_(rank: int, code: int) -> Exit:
    return Exit(rank=rank, host="here", pid=10 + rank, code=code)


def test_a_vanished_process_explains_the_errors_that_follow() -> None:
    exits = [exit_(1, -9), exit_(0, 1)]
    ending = read_ending(exits, [RankOutcome(0, "user", "connection closed", time_s=5)])
    assert (ending.kind, ending.message) == ("lost", "rank 1 (process 11) was killed by SIGKILL")


def test_the_first_word_wins_over_the_first_exit() -> None:
    told = [RankOutcome(1, "user", "cause", time_s=1), RankOutcome(0, "user", "effect", time_s=2)]
    assert read_ending([exit_(0, 1), exit_(1, 1)], told).message == "cause"


def test_the_leaders_reason_to_stop_is_the_gangs() -> None:
    told = [RankOutcome(0, "done", stop_reason="searcher", time_s=1), RankOutcome(1, "done", time_s=2)]
    assert read_ending([exit_(0, 0), exit_(1, 0)], told) == Ending("stopped", stop_reason="searcher")


def test_a_silent_end_counts_as_lost() -> None:
    assert read_ending([exit_(0, 0)], []).kind == "lost"


@pytest.mark.parametrize(
    ("ending", "standing", "expected"),
    [
        (Ending("done"), STANDING, "reached"),
        (Ending("done"), replace(STANDING, wanted="kill"), "killed"),
        (Ending("lost"), STANDING, "restart"),
        (Ending("lost"), replace(STANDING, restarts=2), "errored"),
        (Ending("lost"), replace(STANDING, retries_cancelled="out of memory"), "errored"),
        (Ending("lost"), replace(STANDING, wanted="kill"), "killed"),
        (Ending("lost"), replace(STANDING, wanted="stop"), "completed"),
        (Ending("outside"), STANDING, "restart"),
        (Ending("user"), STANDING, "errored"),
        (Ending("user"), replace(STANDING, has_new_checkpoint=True), "restart"),
        (Ending("input"), replace(STANDING, has_new_checkpoint=True), "errored"),
        (Ending("rejected"), STANDING, "rejected"),
        (Ending("stopped", stop_reason="searcher"), STANDING, "completed"),
        (Ending("stopped", stop_reason="early_stopping"), STANDING, "reached"),
        (Ending("stopped", stop_reason="user"), STANDING, "reached"),
        (Ending("stopped", stop_reason="signal"), STANDING, "queued"),
        (Ending("stopped", stop_reason="preempted"), replace(STANDING, wanted="pause"), "paused"),
    ],
)
def test_what_becomes_of_a_trial(ending: Ending, standing: Standing, expected: Next) -> None:
    assert decide(ending, standing) == expected


def test_whose_fault_it_was() -> None:
    kinds = ("user", "lost", "input", "outside", "done")
    assert [failure_of(Ending(kind)) for kind in kinds] == ["user", "user", "input", "outside", ""]
