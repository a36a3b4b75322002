"""`trek experiment create` and its neighbours, as a user types them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trek.testing.shell import Shell, wait_until


def test_an_experiment_runs_to_its_end_and_is_recorded(shared_shell: Shell) -> None:
    done = shared_shell.create()
    assert done.returncode == 0, done.stderr
    assert "Preparing files" in done.stdout
    assert "1 file, " in done.stdout
    assert "Created experiment" in done.stdout
    assert "Best validation_error:" in done.stdout
    assert "Checkpoint:" in done.stdout

    newest = shared_shell.json("experiment", "list")[0]
    assert newest["state"] == "completed"
    assert newest["progress"] == 1.0
    assert newest["best_metric"] < 0.01
    details = shared_shell.json("experiment", "describe", str(newest["id"]))
    trial = details["trials"][0]
    assert details["best_trial"] == trial["id"]
    assert trial["batches"] == 100
    points = shared_shell.json("trial", "metrics", str(trial["id"]), "--group", "validation")
    assert points[-1]["batches"] == 100
    checkpoints = shared_shell.json("checkpoint", "list", "--trial", str(trial["id"]))
    assert trial["checkpoint"] in [one["uuid"] for one in checkpoints]
    assert shared_shell.json("checkpoint", "describe", trial["checkpoint"][:8])["batches"] == 100
    best = shared_shell.json("checkpoint", "best", str(newest["id"]))
    assert (best["trial_id"], best["reason"]) == (trial["id"], "best_metric")
    assert f"Checkpoint: {best['uuid']}" in done.stdout
    assert f"Checkpoint: {best['uuid']}" in shared_shell.run("experiment", "describe", str(newest["id"])).stdout
    assert shared_shell.json("experiment", "logs", str(newest["id"])) == []


def test_artifacts_of_a_trial_are_listed_and_downloaded(shared_shell: Shell, tmp_path: Path) -> None:
    done = shared_shell.create("--json", hyperparameters__deeds={"batch_3": "artifact"}, resources__slots_per_trial=2)
    assert done.returncode == 0, done.stderr
    trial = str(shared_shell.json("experiment", "describe", str(json.loads(done.stdout)["id"]))["trials"][0]["id"])
    listed = shared_shell.json("trial", "artifacts", trial, "--download", str(tmp_path / "got"))
    assert [(one["name"], one["num_bytes"]) for one in listed] == [("tables/a.csv", 3)]
    assert (tmp_path / "got" / "tables" / "a.csv").read_bytes() == b"x,y"
    again = shared_shell.run("trial", "artifacts", trial, "--download", str(tmp_path / "got"))
    assert (again.returncode, "already exists" in again.stderr) == (2, True)


def test_a_report_on_a_trials_best_checkpoint_is_kept_with_the_trial(shared_shell: Shell) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'trek-ml[report]'")
    done = shared_shell.create("--json", entrypoint="model_def:SignTrial")
    assert done.returncode == 0, done.stderr
    described = shared_shell.json("experiment", "describe", str(json.loads(done.stdout)["id"]))
    trial = str(described["trials"][0]["id"])
    found = shared_shell.json("trial", "report", trial, "--classes", "minus,plus")
    assert found["checkpoint"] == shared_shell.json("checkpoint", "best", str(described["id"]))["uuid"]
    assert found["records"] == 256
    assert found["accuracy"] == pytest.approx(1 - described["trials"][0]["best_metric"])
    assert [one["class"] for one in found["classes"]] == ["minus", "plus", "mean"]
    listed = [one["name"] for one in shared_shell.json("trial", "artifacts", trial)]
    assert sorted(listed) == sorted(found["artifacts"])
    assert "report/confusion_matrix.png" in listed
    wrong = shared_shell.run("trial", "report", trial, "--label", "nothing")
    assert (wrong.returncode, "no tensor 'nothing'" in wrong.stderr) == (2, True)


def test_a_fork_is_followed_as_a_new_experiment_is(shared_shell: Shell) -> None:
    first = json.loads(shared_shell.create("--json").stdout)["id"]
    done = shared_shell.run("experiment", "fork", str(first))
    assert done.returncode == 0, done.stderr
    created = done.stdout.splitlines()[0].removeprefix("Created experiment ")
    assert f"Experiment {created} completed." in done.stdout
    changes = ("--config", "entrypoint=sleep 600", "--config", "searcher.metric=accuracy")
    left = shared_shell.run("experiment", "fork", str(first), "--no-follow", *changes)
    assert left.stderr.startswith("trek: warning: the largest accuracy is best by its name.")
    number = left.stdout.split()[-1]
    assert left.stdout == f"Created experiment {number}\n"
    assert shared_shell.experiment(number)["state"] in ("queued", "running")
    assert shared_shell.run("experiment", "kill", number).returncode == 0


def test_continuing_no_further_than_the_checkpoint_is_refused(shared_shell: Shell) -> None:
    first = json.loads(shared_shell.create("--json", searcher__max_steps=None, searcher__max_length=8).stdout)["id"]
    done = shared_shell.run("experiment", "continue", str(first), "--config", "searcher.max_length=8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is already at 8 batches, and searcher.max_length is 8 batches" in done.stderr
    done = shared_shell.run("experiment", "continue", str(first), "--config", "searcher.max_length=12", "--json")
    assert json.loads(done.stdout)["trials"][0]["batches"] == 12


def test_two_slots_train_as_one_trial(shared_shell: Shell) -> None:
    done = shared_shell.create("--json", resources__slots_per_trial=2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "completed"


def test_an_error_of_the_users_code_shows_the_users_frames_alone(shared_shell: Shell) -> None:
    done = shared_shell.create(hyperparameters__deeds={"batch_3": "raise"})
    assert done.returncode == 1
    assert "ZeroDivisionError: the user's own mistake" in done.stderr
    assert "model_def.py" in done.stderr
    assert "src/trek" not in done.stderr
    newest = shared_shell.json("experiment", "describe", done.stdout.split("Created experiment ")[1].split()[0])
    assert newest["state"] == "errored"
    assert newest["trials"][0]["restarts"] == 0
    assert newest["trials"][0]["failure"] == "user"
    logs = shared_shell.run("experiment", "logs", str(newest["id"])).stdout
    assert "ZeroDivisionError" in logs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entrypoint": "model_def:NotAScalar"}, "scalar"),
        ({"hyperparameters": {"global_batch_size": 32}}, "learning_rate"),
    ],
    ids=["loss is no scalar", "hyperparameter is missing"],
)
def test_a_mistake_found_while_training_is_one_sentence(
    shared_shell: Shell, changes: dict[str, object], words: str
) -> None:
    done = shared_shell.create(**changes)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entrypoint": "nowhere:LineTrial"}, "module 'nowhere' not found"),
        ({"entrypoint": "model_def:Nobody"}, "no 'Nobody'"),
        ({"max_restart": 1}, "Did you mean 'max_restarts'?"),
        ({"resources__slots_per_trial": 64}, "smaller than the 64 slots"),
        ({"searcher": {"name": "single", "max_steps": 1}}, "'searcher.metric' is missing"),
    ],
    ids=["no module", "no class", "unknown key", "batch below slots", "no metric"],
)
def test_a_mistake_found_before_anything_is_stored(shell: Shell, changes: dict[str, object], words: str) -> None:
    done = shell.create(**changes)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not shell.home.exists()


def test_a_folder_over_the_limit_is_refused(shell: Shell) -> None:
    model = shell.folder / "big"
    model.mkdir()
    with (model / "data.bin").open("wb") as file:
        file.truncate(97 * 2**20)
    done = shell.run("experiment", "create", shell.config(), str(model))
    assert done.returncode == 2
    assert "data.bin" in done.stderr


def test_a_home_that_cannot_be_written_is_the_outsides_fault(shell: Shell) -> None:
    shell.variables = {"TREK_HOME": "/dev/null/home"}
    done = shell.create()
    assert done.returncode == 3
    assert "Set TREK_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_following_the_id_comes_at_once_and_the_experiment_can_be_killed(shared_shell: Shell) -> None:
    done = shared_shell.create("--no-follow", "--json", hyperparameters__sleep_s=0.2, searcher__max_steps=100)
    assert done.returncode == 0, done.stderr
    created = json.loads(done.stdout)
    assert created["state"] in ("queued", "running")
    killed = shared_shell.json("experiment", "kill", str(created["id"]))
    assert killed["state"] == "killed"
    assert killed["trials"][0]["state"] == "killed"
    assert shared_shell.json("experiment", "kill", str(created["id"]))["state"] == "killed"


@pytest.mark.parametrize("is_left", [False, True], ids=["ends it", "leaves it"])
def test_ctrl_c_while_following(shared_shell: Shell, is_left: bool) -> None:
    config = shared_shell.config(hyperparameters__sleep_s=0.2, searcher__max_steps=100)
    options = ["--detach-on-interrupt"] if is_left else []
    command = shared_shell.start("experiment", "create", config, str(shared_shell.model), *options)
    assert command.stderr is not None
    assert "Following" in command.stderr.readline()
    command.send_signal(signal.SIGINT)
    output, errors = command.communicate(timeout=240)
    assert command.returncode == 130, errors
    number = output.split("Created experiment ")[1].split()[0]
    state = shared_shell.json("experiment", "describe", number)["state"]
    assert state in (("queued", "running") if is_left else ("killed",))
    if is_left:
        assert f"trek experiment follow {number}" in errors
        assert shared_shell.run("experiment", "wait", number, "--timeout", "0").returncode == 3
        again = shared_shell.start("experiment", "follow", number)
        assert again.stderr is not None
        assert "Ctrl-C leaves it running" in again.stderr.readline()
        shared_shell.run("experiment", "kill", number)
        assert "was killed" in again.communicate(timeout=240)[1]
        assert again.returncode == 1
        assert shared_shell.run("experiment", "wait", number).returncode == 1


def test_ids_that_do_not_exist_are_named(shared_shell: Shell) -> None:
    for args in (["experiment", "describe", "999"], ["trial", "logs", "999"], ["checkpoint", "describe", "zzz"]):
        done = shared_shell.run(*args)
        assert done.returncode == 2
        assert "does not exist" in done.stderr


def test_a_control_plane_with_nothing_to_do_ends_by_itself(shell: Shell) -> None:
    shell.variables = {"TREK_IDLE_S": "0.5"}
    assert shell.json("experiment", "list") == []
    wait_until(lambda: not shell.processes())
    assert not (shell.home / "control.json").exists()
    assert shell.json("experiment", "list") == []


def test_a_paused_experiment_goes_on_where_it_was(shared_shell: Shell) -> None:
    done = shared_shell.create("--no-follow", "--json", hyperparameters__first_run_sleep_s=0.2)
    number = str(json.loads(done.stdout)["id"])
    wait_until(lambda: shared_shell.experiment(number)["trials"][0]["batches"] > 0)
    assert shared_shell.json("experiment", "pause", number)["state"] == "paused"
    saved = shared_shell.experiment(number)["trials"][0]
    assert saved["checkpoint"] is not None
    shared_shell.json("experiment", "activate", number)
    followed = shared_shell.run("experiment", "logs", "-f", number)
    assert followed.returncode == 0
    trial = shared_shell.experiment(number)["trials"][0]
    assert (trial["state"], trial["run"], trial["restarts"], trial["batches"]) == ("completed", 2, 0, 100)


def test_checkpoints_become_versions_of_models_and_templates_fill_configs(shared_shell: Shell) -> None:
    (shared_shell.folder / "base.yaml").write_text("labels: [from-template]\nmax_restarts: 1\n")
    assert shared_shell.run("template", "set", "base", "base.yaml").returncode == 0
    done = shared_shell.create("--template", "base", "--json", "--config", "searcher.max_length=16")
    assert done.returncode == 0, done.stderr
    details = json.loads(done.stdout)
    assert (details["labels"], details["config"]["max_restarts"]) == (["from-template"], 1)
    assert details["trials"][0]["length"] == {"batches": 16}
    packages = details["provenance"]["packages"]
    assert packages["torch"]
    listed = "from importlib import metadata; print(len({one.metadata['Name'] for one in metadata.distributions()}))"
    count = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True).stdout
    assert len(packages) == int(count), "every one, not a choice"
    assert shared_shell.run("model", "create", "line").returncode == 0
    registered = shared_shell.json("model", "register", "line", details["trials"][0]["checkpoint"][:8])
    assert registered["versions"][0]["checkpoint"] == details["trials"][0]["checkpoint"]
    assert shared_shell.json("model", "versions", registered["name"]) == registered["versions"]
    assert shared_shell.run("experiment", "delete", str(details["id"]), "-y").returncode == 2
    assert shared_shell.json("job", "list") == []


def test_a_scaled_trial_trains_the_same_batches_on_more_slots(shared_shell: Shell) -> None:
    plain = json.loads(shared_shell.create("--json").stdout)
    done = shared_shell.create("--no-follow", "--json", hyperparameters__first_run_sleep_s=0.2)
    created = json.loads(done.stdout)
    number, trial = str(created["id"]), str(created["trials"][0]["id"])
    wait_until(lambda: shared_shell.experiment(number)["trials"][0]["state"] == "running")
    assert shared_shell.json("trial", "scale", trial, "--slots", "2")["slots"] == 2
    wait_until(lambda: shared_shell.experiment(number)["state"] == "completed")
    found = shared_shell.experiment(number)["trials"][0]
    assert (found["run"], found["restarts"], found["batches"]) == (2, 0, 100)
    assert found["best_metric"] == pytest.approx(plain["best_metric"], rel=1e-3), "the same records in the same order"
    refused = shared_shell.run("trial", "scale", trial, "--slots", "1")
    assert refused.returncode == 2
    assert "already completed" in refused.stderr
