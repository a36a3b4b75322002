"""Determined's tutorial, Core API and client, by whole commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import trek
from trek.client.embedded import running_address
from trek.compat.determined.experimental import ExperimentState, client
from trek.testing.shell import Shell, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compat" / "determined"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("determined")
    made = Shell(folder / "home", folder, EXAMPLE, {"OMP_NUM_THREADS": "1"})
    yield made
    made.clean_up()


def test_the_tutorial_reaches_its_accuracy(shell: Shell, shared_data: Path) -> None:
    shell.variables["TREK_DATA_MIRROR"] = str(shared_data)
    changes = {"searcher.max_steps": 3, "batches_per_step": 50, "hyperparameters.learning_rate": 0.02}
    small = {"hyperparameters.n_filters1": 8, "hyperparameters.n_filters2": 16, "hyperparameters.dropout": 0.1}
    words = [word for key, value in {**changes, **small}.items() for word in ("--config", f"{key}={value}")]
    done = shell.run("det", "experiment", "create", "-f", str(EXAMPLE / "const.yaml"), str(EXAMPLE), *words, "--json")
    assert done.returncode == 0, done.stderr
    details = json.loads(done.stdout)
    assert (details["name"], details["trials"][0]["batches"]) == ("mnist_pytorch_const", 150)
    assert details["best_metric"] < 0.12, "an accuracy of 88 % after 150 batches"


def test_a_core_script_is_searched_over_paused_and_resumed(shell: Shell) -> None:
    config = str(EXAMPLE / "core.yaml")
    done = shell.run("experiment", "create", config, str(EXAMPLE), "--json")
    assert done.returncode == 0, done.stderr
    assert "no effect here: environment.image (trials run in" in done.stderr
    details = json.loads(done.stdout)
    best = next(one for one in details["trials"] if one["id"] == details["best_trial"])
    assert (best["hparams"], best["batches"], best["progress"]) == ({"rate": 0.1}, 40, 1.0)
    assert details["best_metric"] < 1e-6
    checkpoint = shell.json("checkpoint", "describe", best["checkpoint"])
    assert checkpoint["batches"] == 40


def test_the_client_creates_waits_and_downloads(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("experiment", "list")
    wait_until(lambda: running_address(shell.home) is not None)
    monkeypatch.setenv("TREK_HOME", str(shell.home))
    try:
        config = {"entrypoint": "python3 core_loop.py", "hyperparameters": {"rate": 0.1}}
        searcher = {"name": "single", "metric": "loss", "smaller_is_better": True, "max_length": {"batches": 20}}
        made = client.create_experiment({**config, "searcher": searcher}, EXAMPLE)
        assert made.wait(interval=0.1) is ExperimentState.COMPLETED
        again = client.get_experiment(made.id)
        (trial,) = again.list_trials()
        assert (trial.hparams, trial.state) == ({"rate": 0.1}, ExperimentState.COMPLETED)
        assert [row.batches for row in trial.iter_metrics("training")] == [10, 20]
        top = again.top_checkpoint()
        assert top.metadata == {"steps_completed": 20}
        assert trial.select_checkpoint(latest=True).uuid == top.uuid
        folder = top.download(str(tmp_path / "files"))
        assert trek.Checkpoint(folder).uuid == top.uuid
        model = client.create_model("line")
        assert model.register_version(top.uuid).version == 1
        assert client.get_model("line").get_version().checkpoint.uuid == top.uuid
        with pytest.raises(trek.TrekError, match=r"not found|does not exist"):
            client.get_experiment(999)
    finally:
        client.logout()
