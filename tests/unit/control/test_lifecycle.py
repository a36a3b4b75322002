"""Pausing, activating, forking, archiving, deleting; and which checkpoints stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trek.client import models
from trek.control.checkpoints.best_checkpoint import Candidate
from trek.control.experiments.removal import expired
from trek.errors import ConfigError, InputError, NotFound
from trek.experiments.config import CheckpointStorage
from trek.testing.clock import FakeClock

MakePlane = Callable[..., Any]
# Runs until told to stop, as a trial does that learns of it with its reports.
PATIENT = """
while not os.path.exists(run_dir + '/stop'): time.sleep(0.01)
outcome('done', stop_reason='preempted')
"""
REPORTING = """
point = {"group": "validation", "batches": 10, "metrics": {"error": 1.0}, "time_s": 1.0}
with open(folder + "/spool.jsonl", "w") as file: file.write(json.dumps({"run": run, "metrics": [point]}) + chr(10))
"""
WITH_CHECKPOINT = """
home = f"{plane_home}/trials/{os.environ['TREK_TRIAL_ID']}/checkpoints/one"
os.makedirs(home)
made = {"uuid": "abc-" + os.environ["TREK_TRIAL_ID"], "batches": 100, "metrics": {}, "time_s": 1.0, "files": {}}
with open(home + "/manifest.json", "w") as file: json.dump(made, file)
outcome('done')
"""


def test_pausing_frees_the_slots_and_activating_goes_on(make_plane: MakePlane) -> None:
    plane = make_plane(PATIENT)
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    plane.services.experiments.pause(number)
    assert plane.services.trials.report(1, models.Report(run=1)).stop == "preempted"
    (plane.layout.run(1, 1) / "stop").touch()
    plane.run_until(lambda: plane.services.experiments.get(number).state == "paused")
    assert plane.supervisor.free_slots == plane.supervisor.slots
    for _ in range(5):
        plane.supervisor.tick()
    trial = plane.services.experiments.get(number).trials[0]
    assert (trial.run, trial.waiting) == (1, "its experiment is paused")

    plane.services.experiments.activate(number)
    plane.run_until(lambda: plane.services.experiments.get(number).trials[0].run == 2)
    assert plane.services.experiments.get(number).trials[0].restarts == 0
    plane.services.experiments.kill(number)
    assert plane.run_to_end(number).state == "killed"


def test_a_paused_experiment_can_be_killed(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    assert plane.services.experiments.pause(number).state == "paused"
    details = plane.services.experiments.kill(number)
    assert (details.state, details.trials[0].state) == ("killed", "killed")


def test_what_has_ended_cannot_be_paused_or_activated(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    plane.run_to_end(number)
    for verb in (plane.services.experiments.pause, plane.services.experiments.activate):
        with pytest.raises(InputError, match="already completed"):
            verb(number)


def test_killing_one_trial_lets_the_others_go_on(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600) if os.environ['TREK_TRIAL_ID'] == '1' else outcome('done')")
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_length": 10}
    space = {"lr": {"type": "double", "minval": 0, "maxval": 1}}
    number = plane.create(searcher=searcher, hyperparameters=space)
    plane.run_until(lambda: 1 in plane.supervisor.running)
    plane.services.trials.kill(1)
    details = plane.run_to_end(number)
    assert [trial.state for trial in details.trials] == ["killed", "completed", "completed"]
    assert details.state == "completed"


def test_an_experiment_is_labelled_renamed_and_archived(make_plane: MakePlane) -> None:
    plane = make_plane()
    number = plane.create()
    with pytest.raises(InputError, match="Kill it before archiving"):
        plane.services.experiments.change(number, models.ChangeExperiment(is_archived=True))
    plane.run_to_end(number)
    change = models.ChangeExperiment(is_archived=True, labels=["b", "a", "b"], name="new")
    details = plane.services.experiments.change(number, change)
    assert (details.is_archived, details.labels, details.name) == (True, ["a", "b"], "new")


def test_a_deleted_experiment_leaves_neither_rows_nor_files(make_plane: MakePlane) -> None:
    plane = make_plane("print('hello'); " + WITH_CHECKPOINT.lstrip())
    number = plane.create()
    with pytest.raises(InputError, match="Kill it before deleting"):
        plane.services.experiments.delete(number)
    plane.run_to_end(number)
    folder = plane.layout.trial(1)
    assert folder.exists()
    plane.services.experiments.delete(number)
    assert not folder.exists()
    with pytest.raises(NotFound):
        plane.services.experiments.get(number)
    assert plane.services.checkpoints.all() == []
    assert plane.create() == number + 1, "an id is never used again"


def test_an_experiment_may_be_continued_from_its_best_checkpoint(make_plane: MakePlane) -> None:
    plane = make_plane(REPORTING + WITH_CHECKPOINT)
    first = plane.run_to_end(plane.create())
    fork = models.ForkExperiment(changes={"searcher.max_length": {"batches": 200}}, is_continued=True)
    second = plane.services.experiments.fork(first.id, fork)
    assert (second.parent, second.trials[0].length) == (first.id, {"batches": 200})
    with pytest.raises(InputError, match="starts from"):
        plane.services.experiments.delete(first.id)
    plane.run_until(lambda: plane.services.experiments.get(second.id).state == "running")
    assert plane.services.trials.assignment(second.trials[0].id, run=1).resume == str(
        plane.layout.trial(1) / "checkpoints" / "one"
    )
    plane.run_to_end(second.id)


def test_what_the_policy_removed_is_no_trials_checkpoint_any_more(make_plane: MakePlane) -> None:
    plane = make_plane(REPORTING + WITH_CHECKPOINT)
    keep_none = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}
    details = plane.run_to_end(plane.create(checkpoint_storage=keep_none))
    assert plane.services.checkpoints.get("abc").is_deleted
    assert details.trials[0].checkpoint is None
    with pytest.raises(InputError, match="no checkpoint to continue from"):
        plane.services.experiments.fork(details.id, models.ForkExperiment(is_continued=True))


def test_a_fork_starts_afresh_with_the_secrets_it_cannot_show(make_plane: MakePlane) -> None:
    plane = make_plane()
    first = plane.create(data={"api_key": "s3cret", "max_tokens": "12"})
    shown = plane.services.experiments.get(first).config["data"]
    assert shown == {"api_key": "********", "max_tokens": "12"}
    plane.run_to_end(first)
    second = plane.services.experiments.fork(first, models.ForkExperiment())
    plane.run_until(lambda: plane.services.experiments.get(second.id).state == "running")
    assert plane.services.trials.assignment(second.trials[0].id, run=1).config["data"]["api_key"] == "s3cret"
    with pytest.raises(InputError, match="no checkpoint to continue from"):
        plane.services.experiments.fork(first, models.ForkExperiment(is_continued=True))
    plane.run_to_end(second.id)


def test_a_registered_checkpoint_cannot_go(make_plane: MakePlane) -> None:
    plane = make_plane(WITH_CHECKPOINT)
    details = plane.run_to_end(plane.create())
    registry = plane.services.models
    registry.create(models.CreateModel(name="net"), owner="ann")
    made = registry.register("net", models.RegisterVersion(checkpoint="abc-1", notes="first"))
    assert [(v.number, v.checkpoint) for v in made.versions] == [(1, "abc-1")]
    assert registry.register("net", models.RegisterVersion(checkpoint="abc-1")).versions[0].number == 2
    for remove in (lambda: plane.services.checkpoints.delete("abc"), lambda: plane.services.experiments.delete(1)):
        with pytest.raises(InputError, match="version of a model"):
            remove()
    registry.delete("net")
    plane.services.experiments.delete(details.id)
    with pytest.raises(NotFound):
        registry.register("net", models.RegisterVersion(checkpoint="abc-1"))


def test_a_queued_experiment_can_be_put_first(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)", slots=1)
    numbers = [plane.create() for _ in range(3)]
    plane.run_until(lambda: plane.supervisor.running)
    plane.services.experiments.change(numbers[2], models.ChangeExperiment(priority=1))
    assert [job.experiment_id for job in plane.services.trials.jobs()] == [numbers[0], numbers[2], numbers[1]]
    plane.services.experiments.kill(numbers[0])
    plane.run_until(lambda: plane.services.experiments.get(numbers[2]).state == "running")
    for number in numbers:
        plane.services.experiments.kill(number)
        plane.run_to_end(number)


def test_a_deleted_checkpoint_is_gone_and_remembered(make_plane: MakePlane) -> None:
    plane = make_plane(WITH_CHECKPOINT)
    details = plane.run_to_end(plane.create())
    path = Path(plane.services.checkpoints.get("abc").path)
    assert path.exists()
    assert plane.services.checkpoints.delete("abc").is_deleted
    assert not path.exists()
    assert plane.services.trials.get(details.trials[0].id).checkpoint is None
    with pytest.raises(NotFound, match="were deleted"):
        plane.services.checkpoints.folder("abc").__enter__()


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"save_trial_best": 1, "save_trial_latest": 1}, {"a2", "a3", "b1", "b2"}),
        ({"save_trial_best": 0, "save_trial_latest": 1}, {"a3", "b2"}),
        ({"save_trial_best": 0, "save_trial_latest": 0}, set()),
        ({"save_trial_best": 0, "save_trial_latest": 0, "save_experiment_best": 2}, {"a2", "b1"}),
        ({"save_trial_best": 2, "save_trial_latest": 0}, {"a2", "a1", "b1", "b2"}),
    ],
)
def test_which_checkpoints_stay(policy: dict[str, int], kept: set[str]) -> None:
    candidates = [
        Candidate("a1", 1, 10, 0.5),
        Candidate("a2", 1, 20, 0.1),
        Candidate("a3", 1, 30, None),
        Candidate("b1", 2, 10, 0.2),
        Candidate("b2", 2, 20, 0.9),
    ]
    assert {c.uuid for c in candidates} - expired(candidates, CheckpointStorage(**policy)) == kept


def test_lines_older_than_the_retention_policy_go(make_plane: MakePlane) -> None:
    clock = FakeClock()
    plane = make_plane("print('hello'); outcome('done')", clock=clock)
    kept, dropped = plane.create(), plane.create(retention_policy={"log_retention_days": 1})
    for number in (kept, dropped):
        plane.run_to_end(number)
    plane.supervisor.tick()
    assert len(plane.services.logs.read(experiment_id=dropped)) == 1
    clock.advance(2 * 86_400)
    plane.supervisor.tick()
    assert len(plane.services.logs.read(experiment_id=kept)) == 1
    assert plane.services.logs.read(experiment_id=dropped) == []


def test_metrics_of_long_ended_experiments_go_but_for_their_validations(make_plane: MakePlane) -> None:
    clock = FakeClock()
    script = REPORTING.replace("[point]", '[point, {**point, "group": "training"}]') + "outcome('done')"
    plane = make_plane(script, clock=clock)
    kept = plane.run_to_end(plane.create())
    short = plane.run_to_end(plane.create(retention_policy={"metric_retention_days": 3}))

    def groups() -> list[list[str]]:
        return [[point.group for point in plane.services.trials.metrics(one.trials[0].id)] for one in (kept, short)]

    both = ["training", "validation"]
    for expected in ([both, both], [both, ["validation"]]):
        clock.advance(2 * 86_400)
        plane.supervisor.tick()
        assert groups() == expected


def scaled(plane: Any, number: int, **wanted: int) -> models.TrialRecord:
    trial = plane.services.trials.scale(1, **wanted)
    assert trial.id == plane.services.experiments.get(number).trials[0].id
    return trial  # type: ignore[no-any-return]


def test_a_trial_that_is_scaled_while_it_runs_saves_and_goes_on_with_other_slots(make_plane: MakePlane) -> None:
    plane = make_plane(PATIENT, slots=3)
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    assert plane.services.trials.report(1, models.Report(run=1)).stop == ""
    assert scaled(plane, number, slots=3).slots == 3
    assert plane.services.trials.jobs()[0].slots == 1, "those it holds"
    assert plane.services.trials.report(1, models.Report(run=1)).stop == "preempted"
    (plane.layout.run(1, 1) / "stop").touch()
    plane.run_until(lambda: plane.services.trials.get(1).run == 2)
    plane.run_until(lambda: plane.supervisor.running)
    assert plane.supervisor.running[1].gang.num_workers == 3
    assert plane.services.trials.assignment(1, run=2).config["resources"]["slots_per_trial"] == 3
    assert plane.services.trials.report(1, models.Report(run=2)).stop == ""
    assert plane.services.trials.get(1).restarts == 0
    plane.services.experiments.kill(number)
    plane.run_to_end(number)


def test_a_queued_trial_just_takes_another_size(make_plane: MakePlane) -> None:
    plane = make_plane("print(rank); outcome('done')")
    number = plane.create(hyperparameters={"global_batch_size": 8})
    assert scaled(plane, number, slots=2).slots == 2
    details = plane.run_to_end(number)
    assert (details.state, details.trials[0].run) == ("completed", 1)
    assert {line.rank for line in plane.services.logs.read(trial_id=1)} == {0, 1}


def test_a_scaled_trial_is_found_again_by_the_next_supervisor(make_plane: MakePlane) -> None:
    plane = make_plane(PATIENT)
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    plane.services.trials.scale(1, slots=2)
    plane.supervisor.running.clear()  # killed before the trial heard of it

    again = make_plane(PATIENT)
    again.supervisor._find_gangs()
    assert again.supervisor.running[1].gang.num_workers == 1
    assert again.services.trials.report(1, models.Report(run=1)).stop == "preempted"
    (again.layout.run(1, 1) / "stop").touch()
    again.run_until(lambda: 1 in again.supervisor.running and again.supervisor.running[1].run == 2)
    assert again.supervisor.running[1].gang.num_workers == 2
    again.services.experiments.kill(number)
    assert again.run_to_end(number).trials[0].restarts == 0


def test_pausing_and_activating_keeps_the_size_a_trial_was_scaled_to(make_plane: MakePlane) -> None:
    plane = make_plane(PATIENT)
    number = plane.create()
    plane.run_until(lambda: plane.supervisor.running)
    plane.services.trials.scale(1, slots=2)
    plane.services.experiments.pause(number)
    plane.services.experiments.activate(number)
    assert plane.services.trials.report(1, models.Report(run=1)).stop == "preempted", "it still has the old size"
    (plane.layout.run(1, 1) / "stop").touch()
    plane.run_until(lambda: plane.services.trials.get(1).run == 2)
    assert plane.services.trials.get(1).slots == 2
    plane.services.experiments.kill(number)
    plane.run_to_end(number)


@pytest.mark.parametrize(
    ("changes", "slots", "words"),
    [
        ({}, 3, "the cluster has 2"),
        ({"resources": {"max_slots": 1}}, 2, "its experiment may use 1"),
        (
            {"hyperparameters": {"global_batch_size": 1}},
            2,
            "its global_batch_size 1 is smaller. Give it at most 1",
        ),
        ({"strategy": "solo"}, 2, "cannot have 2 slots: strategy 'solo' trains one replica"),
        ({"strategy": "fsdp", "resources": {"slots_per_trial": 2}}, 1, "strategy 'fsdp' needs at least 2 processes"),
    ],
    ids=["cluster", "experiment", "batch", "solo", "fsdp"],
)
def test_a_size_that_cannot_be_is_refused(
    make_plane: MakePlane, changes: dict[str, Any], slots: int, words: str
) -> None:
    plane = make_plane()
    plane.create(**changes)
    with pytest.raises(InputError, match=words):
        plane.services.trials.scale(1, slots=slots)


def test_a_trial_that_has_ended_cannot_be_scaled(make_plane: MakePlane) -> None:
    plane = make_plane()
    plane.run_to_end(plane.create())
    with pytest.raises(InputError, match="trial 1 is already completed"):
        plane.services.trials.scale(1, slots=2)


def test_an_experiment_for_another_engine_is_refused_and_for_this_one_taken(make_plane: MakePlane) -> None:
    plane = make_plane()
    assert plane.create(engine="local")
    with pytest.raises(ConfigError, match="engine 'mars' does not exist"):
        plane.create(engine="mars")
