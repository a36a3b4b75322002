"""Commands as trials: an explicit loop is searched over, paused, scaled and failed as a Trial is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trek.testing.shell import Shell, wait_until

PROGRAM = Path(__file__).parent / "program"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("commands")
    made = Shell(folder / "home", folder, PROGRAM)
    yield made
    made.clean_up()


def create(shell: Shell, *args: str, max_length: Any = None, **changes: Any) -> Any:
    searcher = {"name": "single", "metric": "validation_error", "max_length": max_length or {"epochs": 3}}
    settings = {"entrypoint": "python train.py", "searcher": searcher, "hyperparameters": {"lr": 0.05}, **changes}
    done = shell.create("--json", *args, **settings)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_loop_is_searched_over_and_its_reports_decide(shell: Shell) -> None:
    searcher = {"name": "grid", "metric": "validation_error", "max_length": {"epochs": 3}}
    rates = {"type": "categorical", "vals": [0.0001, 0.1]}
    details = create(shell, searcher=searcher, hyperparameters={"lr": rates}, entrypoint=["python", "train.py"])
    assert details["state"] == "completed"
    assert [trial["batches"] for trial in details["trials"]] == [24, 24], "the config's length, not the program's"
    best = next(trial for trial in details["trials"] if trial["id"] == details["best_trial"])
    assert best["hparams"] == {"lr": 0.1}
    assert best["best_metric"] < 0.01
    assert best["checkpoint"] is not None
    points = shell.json("trial", "metrics", str(best["id"]), "--group", "validation")
    assert [point["batches"] for point in points] == [8, 16, 24]
    logs = [line["text"] for line in shell.json("trial", "logs", str(best["id"]))]
    assert "rank 0 of 1, lr 0.1" in logs


def test_a_length_in_batches_ends_within_an_epoch_and_is_saved(shell: Shell) -> None:
    details = create(shell, max_length={"batches": 11})
    trial = details["trials"][0]
    assert (details["state"], trial["batches"], trial["progress"]) == ("completed", 11, 1.0)
    assert shell.json("checkpoint", "describe", trial["checkpoint"])["batches"] == 11


def test_a_paused_and_scaled_loop_goes_on_where_it_was(shell: Shell) -> None:
    whole = create(shell)
    created = create(shell, "--no-follow", hyperparameters={"lr": 0.05, "sleep_s": 0.5, "global_batch_size": 32})
    number, trial = str(created["id"]), str(created["trials"][0]["id"])
    wait_until(lambda: shell.experiment(number)["trials"][0]["batches"] >= 8)
    assert shell.run("experiment", "pause", number).returncode == 0
    assert shell.experiment(number)["state"] == "paused"
    assert shell.run("trial", "scale", trial, "--slots", "2").returncode == 0
    shell.run("experiment", "activate", number)
    wait_until(lambda: shell.experiment(number)["state"] == "completed")
    found = shell.experiment(number)["trials"][0]
    assert (found["run"], found["restarts"], found["batches"]) == (2, 0, 24)
    assert found["best_metric"] == pytest.approx(whole["best_metric"], rel=1e-3)
    assert {line["rank"] for line in shell.json("trial", "logs", trial)} == {0, 1}


@pytest.mark.parametrize(
    ("program", "max_length", "batches", "validated"),
    [
        ("train.py", {"records": 350}, 11, None),
        ("fit.py", {"batches": 11}, 11, [8, 11]),
        ("fit.py", {"records": 350}, 11, [8, 11]),
    ],
    ids=["records of a loop", "batches of fit", "records of fit"],
)
def test_the_experiment_decides_how_far_a_program_trains(
    shell: Shell, program: str, max_length: dict[str, int], batches: int, validated: list[int] | None
) -> None:
    """Epochs: see the other tests."""
    hparams = {"lr": 0.05, "global_batch_size": 32}
    details = create(shell, entrypoint=f"python {program}", max_length=max_length, hyperparameters=hparams)
    trial = details["trials"][0]
    assert (details["state"], trial["batches"], trial["progress"]) == ("completed", batches, 1.0)
    assert shell.json("checkpoint", "describe", trial["checkpoint"])["batches"] == batches
    if validated is not None:  # the Trainer validates the end of every run; a loop of one's own need not
        points = shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
        assert [point["batches"] for point in points] == validated


@pytest.mark.parametrize(("program", "batches"), [("train.py", 8), ("fit.py", 40)])
def test_without_a_length_in_the_config_the_program_decides(shell: Shell, program: str, batches: int) -> None:
    searcher = {"name": "single", "metric": "validation_error"}
    details = create(shell, entrypoint=["python", program], searcher=searcher)
    trial = details["trials"][0]
    assert (details["state"], trial["batches"], trial["progress"]) == ("completed", batches, 1.0)


def test_a_fit_in_a_program_that_is_killed_goes_on_from_its_checkpoint(shell: Shell) -> None:
    hparams = {"deed": "die once", "global_batch_size": 32}
    details = create(shell, entrypoint="python fit.py", hyperparameters=hparams)
    trial = details["trials"][0]
    assert (details["state"], trial["restarts"], trial["batches"]) == ("completed", 1, 24)
    training = shell.json("trial", "metrics", str(trial["id"]), "--group", "training")
    assert [point["batches"] for point in training] == [8, 16, 24], "the first epoch was not trained again"


def test_a_fit_in_a_program_stops_when_it_is_paused_and_goes_on(shell: Shell) -> None:
    hparams = {"sleep_s": 0.5, "global_batch_size": 32}
    created = create(
        shell, "--no-follow", entrypoint="python fit.py", max_length={"batches": 30}, hyperparameters=hparams
    )
    number = str(created["id"])
    wait_until(lambda: shell.experiment(number)["trials"][0]["batches"] >= 8)
    assert shell.run("experiment", "pause", number).returncode == 0
    assert shell.experiment(number)["state"] == "paused"
    shell.run("experiment", "activate", number)
    wait_until(lambda: shell.experiment(number)["state"] == "completed")
    found = shell.experiment(number)["trials"][0]
    assert (found["run"], found["restarts"], found["batches"]) == (2, 0, 30)


def test_what_a_config_says_of_training_takes_the_place_of_the_programs_own(shell: Shell) -> None:
    training = {"loggers": ["csv"], "accumulate": 2, "profile": {"first": 1, "last": 2}}
    details = create(shell, entrypoint="python fit.py", hyperparameters={"global_batch_size": 32}, training=training)
    trial = details["trials"][0]
    logs = [line["text"] for line in shell.json("trial", "logs", str(trial["id"]))]
    assert details["state"] == "completed"
    assert any("wrote the trace of batches 1 to 2 to" in line for line in logs)
    assert {path.name for path in (shell.home / "trials").rglob("*") if path.suffix in (".csv", ".json")} >= {
        "training.csv", "validation.csv", "profile.json",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("deed", "failure", "words"),
    [
        ("raise", "user", "ZeroDivisionError: the user's own mistake"),
        ("reject", "rejected", "such a rate is not worth a try"),
        ("exit", "user", "'python train.py' ended with code 7"),
    ],
)
def test_a_program_that_fails_says_how(shell: Shell, deed: str, failure: str, words: str) -> None:
    details = create(shell, hyperparameters={"deed": deed}, max_restarts=0)
    trial = details["trials"][0]
    assert (trial["state"], trial["failure"]) == ("errored", failure)
    assert words in trial["error"]


def test_a_program_that_is_killed_goes_on_from_its_checkpoint(shell: Shell) -> None:
    details = create(shell, hyperparameters={"deed": "die once"})
    trial = details["trials"][0]
    assert (details["state"], trial["restarts"], trial["batches"]) == ("completed", 1, 24)
    points = shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
    assert [point["batches"] for point in points] == [8, 16, 24]


def test_a_command_without_a_traveler_is_measured_and_ended_by_a_pause(shell: Shell) -> None:
    created = create(shell, "--no-follow", entrypoint="sleep 600")
    number, trial = str(created["id"]), str(created["trials"][0]["id"])
    wait_until(lambda: shell.experiment(number)["trials"][0]["state"] == "running")
    wait_until(lambda: shell.json("trial", "metrics", trial, "--group", "system.0"))
    (measured, *_) = shell.json("trial", "metrics", trial, "--group", "system.0")
    assert measured["metrics"]["memory_bytes"] > 1 << 20
    assert "data_wait_percent" not in measured["metrics"]
    assert shell.run("experiment", "pause", number).returncode == 0
    assert shell.experiment(number)["state"] == "paused"
    assert shell.json("experiment", "kill", number)["state"] == "killed"


@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        ("python nowhere.py", "script 'nowhere.py' not found"),
        ("no-such-program --now", "program 'no-such-program' not found"),
        ("train.Line", "or a command, such as python train.py"),
    ],
)
def test_a_command_that_cannot_be_is_refused_before_anything_is_stored(
    shell: Shell, entrypoint: str, words: str
) -> None:
    done = shell.create(entrypoint=entrypoint)
    assert done.returncode == 2
    assert words in done.stderr
