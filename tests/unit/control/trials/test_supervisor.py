"""Gangs of trials: started, watched, restarted, killed, found again. Real processes, small scripts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from trek.client import models
from trek.errors import ConfigError

MakePlane = Callable[..., Any]


def test_a_trial_that_trains_to_its_length_completes_its_experiment(make_plane: MakePlane) -> None:
    plane = make_plane("print('hello', rank); outcome('done')")
    details = plane.run_to_end(plane.create())
    assert details.state == "completed"
    assert details.progress == 1.0
    assert details.trials[0].state == "completed"
    assert [line.text for line in plane.services.logs.read(experiment_id=details.id)] == ["hello 0"]


def test_every_slot_of_a_trial_gets_a_process_and_its_log(make_plane: MakePlane) -> None:
    plane = make_plane("print('rank', rank, 'of', os.environ['WORLD_SIZE']); outcome('done')")
    details = plane.run_to_end(plane.create(resources={"slots_per_trial": 2}))
    lines = plane.services.logs.read(trial_id=details.trials[0].id)
    assert sorted((line.rank, line.text) for line in lines) == [(0, "rank 0 of 2"), (1, "rank 1 of 2")]


def test_a_process_that_vanishes_is_restarted_up_to_the_limit(make_plane: MakePlane) -> None:
    plane = make_plane("os.kill(os.getpid(), 9)")
    trial = plane.run_to_end(plane.create(max_restarts=2)).trials[0]
    assert (trial.state, trial.restarts, trial.run) == ("errored", 2, 3)
    assert "SIGKILL" in trial.error


def test_a_restart_that_goes_well_leaves_no_error(make_plane: MakePlane) -> None:
    plane = make_plane("os.kill(os.getpid(), 9) if run == 1 else outcome('done')")
    details = plane.run_to_end(plane.create())
    assert details.state == "completed"
    assert (details.trials[0].restarts, details.trials[0].error) == (1, "")


@pytest.mark.parametrize(("kind", "failure"), [("user", "user"), ("input", "input")])
def test_an_error_that_would_come_again_is_final(make_plane: MakePlane, kind: str, failure: str) -> None:
    plane = make_plane(f"outcome({kind!r}, 'it is wrong')")
    details = plane.run_to_end(plane.create())
    assert (details.state, details.error, details.failure) == ("errored", "it is wrong", failure)
    assert details.trials[0].run == 1


def test_the_first_cause_in_a_gang_is_the_one_told(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('user', 'the cause') if rank == 1 else (time.sleep(0.5), outcome('user', 'an effect'))")
    details = plane.run_to_end(plane.create(resources={"slots_per_trial": 2}))
    assert details.error == "the cause"


def test_a_rank_that_hangs_after_another_failed_is_ended(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('user', 'the cause') if rank == 1 else time.sleep(600)")
    details = plane.run_to_end(plane.create(resources={"slots_per_trial": 2}))
    assert details.error == "the cause"


def test_a_line_that_matches_a_log_policy_cancels_restarts(make_plane: MakePlane) -> None:
    plane = make_plane("print('CUDA out of memory', flush=True); os.kill(os.getpid(), 9)")
    trial = plane.run_to_end(plane.create(log_policies=[{"pattern": "out of memory"}])).trials[0]
    assert (trial.state, trial.restarts) == ("errored", 0)


def test_a_slow_pattern_holds_up_nobody(make_plane: MakePlane) -> None:
    """The policy (a+)+$ and one line of a's froze the control plane for good."""
    plane = make_plane("print('a' * 5000 + '!', flush=True); outcome('done')")
    details = plane.run_to_end(plane.create(log_policies=[{"pattern": "(a+)+$"}]))
    assert details.state == "completed"


def test_killing_an_experiment_ends_its_processes(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)")
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    (pid,) = next(iter(plane.supervisor.running.values())).gang.pids.values()
    plane.services.experiments.kill(number)
    assert plane.run_to_end(number).state == "killed"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_queued_trial_says_why_it_waits(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)", slots=1)
    first, second = plane.create(), plane.create()
    plane.run_until(lambda: plane.services.experiments.get(second).trials[0].waiting != "")
    assert plane.services.experiments.get(second).trials[0].waiting == "needs 1 slot, 0 free, 1st in queue"
    for number in (first, second):
        plane.services.experiments.kill(number)
        plane.run_to_end(number)


def test_more_slots_than_cores_run_when_nothing_else_does(make_plane: MakePlane) -> None:
    plane = make_plane(slots=1)
    done = plane.run_to_end(plane.create(resources={"slots_per_trial": 3}))
    assert done.state == "completed"
    assert done.warnings == [
        "resources.slots_per_trial: 3 workers share 1 CPU core: more than that seldom train faster."
    ]


def test_so_many_slots_that_the_machine_would_stand_still_are_refused(make_plane: MakePlane) -> None:
    plane = make_plane(slots=2)
    with pytest.raises(ConfigError, match=r"needs 17 slots, but this machine has 2 \(CPU cores\)"):
        plane.create(resources={"slots_per_trial": 17})
    assert plane.services.experiments.all() == []


def test_a_gang_is_found_again_by_the_next_supervisor(make_plane: MakePlane) -> None:
    plane = make_plane("print('one', flush=True); time.sleep(1); print('two'); outcome('done')")
    number = plane.create()
    trial_id = plane.services.experiments.get(number).trials[0].id
    plane.run_until(lambda: len(plane.services.logs.read(trial_id=trial_id)) == 1)

    after = make_plane("raise AssertionError('never started')")
    after.supervisor._find_gangs()
    details = after.run_to_end(number)
    assert (details.state, details.trials[0].run) == ("completed", 1)
    assert [line.text for line in after.services.logs.read(trial_id=trial_id)] == ["one", "two"]


def test_a_run_that_never_started_is_started_again(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    with plane.store.writing() as session:
        from trek.control.tables import TrialRow
        from trek.control.trials.runs import begin_run

        begin_run(session, session.get_one(TrialRow, 1), slots=[0], now_s=1.0)
    after = make_plane()
    after.supervisor._find_gangs()
    details = after.run_to_end(number)
    assert (details.state, details.trials[0].run, details.trials[0].restarts) == ("completed", 2, 0)


def test_spooled_reports_are_taken_in_when_the_run_ends(make_plane: MakePlane) -> None:
    point = models.MetricPoint(group="validation", batches=100, metrics={"error": 0.5}, time_s=1.0)
    report = models.Report(run=1, metrics=[point]).model_dump_json()
    plane = make_plane(f"open(folder + '/spool.jsonl', 'w').write({report + chr(10)!r} + 'torn'); outcome('done')")
    details = plane.run_to_end(plane.create())
    assert details.best_metric == 0.5
    assert plane.services.trials.metrics(details.trials[0].id) == [point]


def test_stopping_the_supervisor_puts_trials_back_in_the_queue(make_plane: MakePlane) -> None:
    plane = make_plane(
        "import signal; signal.signal(15, lambda *_: outcome('done', stop_reason='signal'))\n"
        "print('up', flush=True); time.sleep(600)"
    )
    number = plane.create()
    plane.run_until(lambda: plane.services.logs.read(experiment_id=number))
    plane.supervisor.start()
    plane.supervisor.stop(grace_s=20)
    trial = plane.services.experiments.get(number).trials[0]
    assert (trial.state, trial.restarts) == ("queued", 0)
    assert plane.supervisor.running == {}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OperationalError("BEGIN", {}, Exception())])
def test_the_supervisor_survives_what_the_outside_does(
    make_plane: MakePlane, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    plane = make_plane("outcome('done')")
    rounds = iter([error, error])
    collect = plane.supervisor._collect

    def troubled() -> None:
        for trouble in rounds:
            raise trouble
        collect()

    monkeypatch.setattr(plane.supervisor, "_collect", troubled)
    number = plane.create()
    plane.supervisor.start()
    deadline = time.monotonic() + 240
    while plane.services.experiments.get(number).state != "completed":
        assert time.monotonic() < deadline
        plane.supervisor.wake()
        time.sleep(0.05)
    plane.supervisor.stop()


@pytest.mark.parametrize("document", ["garbage", "[]", "{}", "[" * 100_000, '{"rank": 0, "kind": "\\ud800"}'])
def test_an_outcome_that_is_none_ends_one_trial_and_nobody_else(make_plane: MakePlane, document: str) -> None:
    """Garbage in a trial's outcome.json ended the supervisor's thread, and with it all supervision."""
    script = f"open(folder + '/outcome.json', 'w').write({document!r}); sys.exit(1)"
    details = make_plane(script)
    ended = details.run_to_end(details.create(max_restarts=0))
    assert ended.state == "errored"


def test_text_that_no_database_takes_is_replaced(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('user', 'bad \\ud800 and \\0 text')")
    assert "bad" in plane.run_to_end(plane.create(max_restarts=0)).error


def test_a_chatty_trial_keeps_nobody_from_being_served(make_plane: MakePlane) -> None:
    """A trial that printed 300 MB held up every other trial until all of it was stored."""
    script = "sys.stdout.write(('x' * 99 + '\\n') * 60_000); sys.stdout.flush(); time.sleep(600)"
    plane = make_plane(script)
    number = plane.create()
    plane.run_until(lambda: bool(plane.services.logs.read(experiment_id=number, limit=1)))
    plane.supervisor.tick()
    stored = len(plane.services.logs.read(experiment_id=number, limit=100_000))
    assert 0 < stored < 60_000, "a bounded part in every round"
    plane.services.experiments.kill(number)
    assert plane.run_to_end(number).state == "killed"
