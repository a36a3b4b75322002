"""Searches through the control plane: trials made, stopped, extended and copied as the Searcher says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from trek.client.models import MetricPoint, Report

MakePlane = Callable[..., Any]

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
# A trial whose only validation says its own id, left in the spool for the supervisor, with a checkpoint.
REPORTING = """
trial = int(os.environ["TREK_TRIAL_ID"])
point = {"group": "validation", "batches": 10, "metrics": {"error": float(trial)}, "time_s": 1.0}
with open(folder + "/spool.jsonl", "w") as file: file.write(json.dumps({"run": run, "metrics": [point]}) + chr(10))
home = f"{plane_home}/trials/{trial}/checkpoints/run_{run}"
os.makedirs(home)
made = {"uuid": f"u-{trial}-{run}", "batches": 10 * run, "metrics": {}, "time_s": 1.0, "files": {}}
with open(home + "/manifest.json", "w") as file: json.dump(made, file)
outcome("done")
"""


def test_a_random_search_runs_all_its_trials_and_names_the_best(make_plane: MakePlane) -> None:
    plane = make_plane(REPORTING)
    searcher = {"name": "random", "metric": "error", "max_trials": 4, "max_length": 10, "max_concurrent_trials": 2}
    details = plane.run_to_end(plane.create(searcher=searcher, hyperparameters=SPACE))
    assert details.state == "completed"
    assert [trial.state for trial in details.trials] == ["completed"] * 4
    assert (details.best_trial, details.best_metric) == (1, 1.0)
    assert len({trial.hparams["lr"] for trial in details.trials}) == 4


def test_trials_that_wait_at_a_rung_are_promoted_or_closed(make_plane: MakePlane) -> None:
    plane = make_plane(REPORTING)
    searcher = {"name": "asha", "metric": "error", "max_trials": 4, "max_length": 8, "num_rungs": 2, "promote": True}
    details = plane.run_to_end(plane.create(searcher=searcher, hyperparameters=SPACE))
    assert Counter(trial.length["batches"] for trial in details.trials) == {2: 3, 8: 1}
    assert [trial.run for trial in details.trials] == [2, 1, 1, 1], "the best went on in a second run"
    assert [trial.state for trial in details.trials] == ["completed"] * 4


def test_a_copy_starts_from_its_parents_checkpoint(make_plane: MakePlane) -> None:
    plane = make_plane(REPORTING)
    searcher = {
        "name": "pbt",
        "metric": "error",
        "population_size": 2,
        "num_rounds": 2,
        "length_per_round": 10,
        "replace_function": {"truncate_fraction": 0.5},
    }
    details = plane.run_to_end(plane.create(searcher=searcher, hyperparameters=SPACE))
    assert [trial.state for trial in details.trials] == ["completed"] * 3
    with plane.store.reading() as session:
        from trek.control.tables import TrialRow

        child = session.get_one(TrialRow, 3)
        assert (child.parent_key, child.length) == (0, 20)
        assert child.start_checkpoint is not None
    manifest = plane.layout.trial(3) / "start" / "manifest.json"
    assert '"u-1-1"' in manifest.read_text()


def test_a_report_that_a_rung_finds_wanting_stops_the_trial(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)", slots=2)
    searcher = {"name": "asha", "metric": "error", "max_trials": 2, "max_length": 100, "num_rungs": 2}
    number = plane.create(searcher=searcher, hyperparameters=SPACE)
    plane.run_until(lambda: len(plane.supervisor.running) == 2)

    def report(trial: int, batches: int, error: float) -> str:
        point = MetricPoint(group="validation", batches=batches, metrics={"error": error}, time_s=1.0)
        return str(plane.services.trials.report(trial, Report(run=1, metrics=[point])).stop)

    assert report(1, 25, 0.1) == ""
    assert report(2, 25, 0.2) == "searcher"
    assert report(1, 100, 0.1) == "searcher"
    plane.services.experiments.kill(number)
    plane.run_to_end(number)


def test_rungs_are_validated_though_the_config_asks_for_less(make_plane: MakePlane) -> None:
    plane = make_plane("time.sleep(600)")
    searcher = {"name": "asha", "metric": "error", "max_trials": 1, "max_length": 100, "num_rungs": 2}
    number = plane.create(searcher=searcher, hyperparameters=SPACE, min_validation_period={"batches": 50})
    plane.run_until(lambda: plane.supervisor.running)
    assert plane.services.trials.assignment(1, run=1).validation_period == {"batches": 25}
    plane.services.experiments.kill(number)
    plane.run_to_end(number)


def test_one_failed_trial_does_not_end_a_search(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('user', 'no') if os.environ['TREK_TRIAL_ID'] == '1' else outcome('done')")
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_length": 10}
    details = plane.run_to_end(plane.create(searcher=searcher, hyperparameters=SPACE))
    assert details.state == "completed"
    assert [trial.state for trial in details.trials] == ["errored", "completed", "completed"]


def test_a_rejected_draw_is_replaced(make_plane: MakePlane) -> None:
    plane = make_plane("outcome('rejected', 'no') if os.environ['TREK_TRIAL_ID'] == '1' else outcome('done')")
    searcher = {"name": "random", "metric": "error", "max_trials": 2, "max_length": 10}
    details = plane.run_to_end(plane.create(searcher=searcher, hyperparameters=SPACE))
    assert [trial.failure for trial in details.trials] == ["rejected", "", ""]
    assert details.state == "completed"
