"""Nothing lost, nothing twice: the control plane and trials are killed, and the experiment goes on where it was."""

from __future__ import annotations

import json
import signal
from typing import Any

from trek.testing.shell import Shell, wait_until


def create(shell: Shell, **changes: Any) -> str:
    done = shell.create("--no-follow", "--json", **changes)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def trial_of(shell: Shell, experiment: str) -> dict[str, Any]:
    trial: dict[str, Any] = shell.experiment(experiment)["trials"][0]
    return trial


def batches_of(shell: Shell, trial_id: int) -> list[int]:
    return [point["batches"] for point in shell.json("trial", "metrics", str(trial_id), "--group", "validation")]


def test_what_a_trial_reports_while_nobody_listens_is_taken_in_later(shell: Shell) -> None:
    experiment = create(shell, hyperparameters__sleep_s=0.02)
    wait_until(lambda: trial_of(shell, experiment)["batches"] > 0)
    shell.control_plane().send_signal(signal.SIGKILL)
    wait_until(lambda: not shell.processes())  # the trial came to its end alone
    trial = trial_of(shell, experiment)
    wait_until(lambda: trial_of(shell, experiment)["state"] == "completed")
    assert (trial["restarts"], trial["run"]) == (0, 1)
    assert batches_of(shell, trial["id"]) == [*range(8, 100, 8), 100]


def test_a_killed_trial_goes_on_from_its_last_checkpoint(shell: Shell) -> None:
    done = shell.create(
        "--json",
        hyperparameters__deeds={"batch_60": "die_once"},
        min_checkpoint_period={"batches": 8},
        min_validation_period={"batches": 8},
    )
    assert done.returncode == 0, done.stderr
    trial = json.loads(done.stdout)["trials"][0]
    assert (trial["restarts"], trial["run"], trial["batches"]) == (1, 2, 100)
    assert batches_of(shell, trial["id"]) == [*range(8, 100, 8), 100]


def test_a_stopped_control_plane_lets_trials_save_and_continues_them_at_its_next_start(shell: Shell) -> None:
    experiment = create(shell, hyperparameters__first_run_sleep_s=0.2)
    wait_until(lambda: trial_of(shell, experiment)["batches"] > 0)
    assert shell.run("cluster", "stop").returncode == 0
    assert not shell.processes()
    wait_until(lambda: trial_of(shell, experiment)["state"] == "completed")
    trial = trial_of(shell, experiment)
    assert (trial["restarts"], trial["run"], trial["batches"]) == (0, 2, 100)


def test_a_control_plane_that_is_stopped_with_its_experiments_ends_them(shell: Shell) -> None:
    experiment = create(shell, hyperparameters__sleep_s=0.2)
    wait_until(lambda: trial_of(shell, experiment)["batches"] > 0)
    assert shell.run("cluster", "stop", "--kill").returncode == 0
    assert not shell.processes()
    assert shell.experiment(experiment)["state"] == "killed"


def test_a_search_outlives_a_killed_control_plane_and_is_found_again(shell: Shell) -> None:
    space = {"learning_rate": {"type": "log", "minval": -3, "maxval": -1}, "global_batch_size": 32, "sleep_s": 0.01}
    searcher = {"name": "adaptive_asha", "metric": "validation_error", "max_trials": 3, "max_length": {"batches": 64}}
    experiment = create(shell, hyperparameters=space, searcher=searcher, min_validation_period={"batches": 8})
    wait_until(lambda: trial_of(shell, experiment)["batches"] > 0)
    shell.control_plane().send_signal(signal.SIGKILL)
    wait_until(lambda: shell.experiment(experiment)["state"] == "completed")
    details = shell.experiment(experiment)
    assert [(trial["state"], trial["restarts"], trial["run"]) for trial in details["trials"]] == [
        ("completed", 0, 1)
    ] * 3
    assert details["best_trial"] is not None
    for trial in details["trials"]:
        reported = batches_of(shell, trial["id"])
        assert reported == [*range(8, reported[-1] + 1, 8)]
