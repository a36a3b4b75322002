"""Gangs of elastic trials under the supervisor: errors, stops, replaced workers, a control plane that is restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trek.control.trials import elastic_watch
from trek.control.trials.endings import Ending, read_elastic_ending
from trek.elastic.elastic_gang import JobEnd
from trek.elastic.joining import membership_settings
from trek.elastic.membership_settings import MembershipSettings
from trek.engines import Exit
from trek.errors import InputError
from trek.train.jobs.rank_outcome import RankOutcome

MakePlane = Callable[..., Any]
ELASTIC = {"slots_per_trial": {"min": 1, "max": 2}}


def test_the_last_to_report_says_how_an_elastic_run_ended() -> None:
    done = RankOutcome(0, "done", time_s=1.0)
    stopped = RankOutcome(1, "done", stop_reason="preempted", time_s=2.0)
    assert read_elastic_ending(JobEnd(), [done]) == Ending("done")
    assert read_elastic_ending(JobEnd(), [done, stopped]) == Ending("stopped", stop_reason="preempted")
    assert read_elastic_ending(JobEnd(), []).kind == "lost"


def test_an_error_of_one_worker_is_the_runs() -> None:
    failed = RankOutcome(1, "user", "it is wrong")
    assert read_elastic_ending(JobEnd(failed=Exit(1, "here", 7, 1)), [failed]) == Ending("user", "it is wrong")
    killed = Exit(0, "here", 7, -9)
    ending = read_elastic_ending(JobEnd(failed=killed, reason="no worker survived"), [])
    assert ending.kind == "lost"
    assert "no worker survived; the last one: rank 0 (process 7) was killed by SIGKILL" in ending.message


def test_an_error_in_the_users_code_ends_an_elastic_trial(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('user', 'it is wrong')")
    details = plane.run_to_end(plane.create(resources=ELASTIC))
    assert (details.state, details.error, details.trials[0].run) == ("errored", "it is wrong", 1)


def test_workers_that_never_join_are_not_started_for_ever(
    make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow start is no crash loop, so that a trial waits for minutes; here it has less time."""

    def impatient(*given: Any) -> MembershipSettings:
        return replace(membership_settings(*given), loss_s=1.0)

    monkeypatch.setattr(elastic_watch, "membership_settings", impatient)
    plane = make_plane("os.kill(os.getpid(), 9)")
    trial = plane.run_to_end(plane.create(resources=ELASTIC, max_restarts=0)).trials[0]
    assert (trial.state, trial.run) == ("errored", 1)
    assert "workers were killed before they joined the others" in trial.error
    assert "SIGKILL" in trial.error


def test_an_elastic_trial_is_killed_with_its_coordinator(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)")
    number = plane.create(resources=ELASTIC)
    plane.run_until(lambda: plane.supervisor.running)
    pids = [place.pid for place in plane.supervisor.running[1].gang.placements]
    assert len(pids) == 3
    plane.services.experiments.kill(number)
    assert plane.run_to_end(number).state == "killed"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_only_numbers_in_the_range_are_accepted(make_plane: MakePlane) -> None:
    plane = make_plane(slots=4)
    plane.create(resources=ELASTIC)
    with pytest.raises(InputError, match="allows 1 to 2"):
        plane.services.trials.scale(1, slots=3)
    assert plane.services.trials.scale(1, slots=1).slots == 1


def test_the_next_supervisor_replaces_workers_too(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)")
    number = plane.create(resources=ELASTIC)
    plane.run_until(lambda: plane.supervisor.running)
    before = plane.supervisor.running[1].gang.pids

    plane.supervisor.running[1].elastic._job.poll = lambda: None  # nobody supervises it
    after = make_plane("time.sleep(600)")
    after.supervisor._find_gangs()
    try:
        assert after.supervisor.running[1].gang.pids == before
        os.kill(before[1], signal.SIGKILL)
        after.run_until(lambda: after.supervisor.running[1].gang.pids.get(1, before[1]) != before[1])
        assert after.supervisor.running[1].gang.pids[0] == before[0]
    finally:
        after.services.experiments.kill(number)
        assert after.run_to_end(number).trials[0].restarts == 0
        plane.supervisor.running[1].stop(grace_s=0)
