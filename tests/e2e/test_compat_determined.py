"""Determined's tutorial, Core API and client, by whole commands."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import trek
from trek.client.embedded import running_address
from trek.compat.determined.experimental import ExperimentState, client
from trek.errors import InputError, NotFound
from trek.testing.shell import Shell, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compat" / "determined"
TUTORIAL = Path(__file__).resolve().parents[3] / "shared" / "seeds" / "determined-pytorch-mnist-tutorial.rst"
IMPORTS = """\
from typing import Tuple, cast
import torch
from torch import nn
from torch.nn import Flatten
import trek.compat.determined as det
from trek.compat.determined.pytorch import DataLoader, PyTorchTrial, TorchData, reset_parameters
from trek.compat.torchvision import datasets, transforms
"""
MISSING = """\
def load(self, train):
    return datasets.MNIST("data", train=train, transform=transforms.ToTensor(), download=True)

def build_training_data_loader(self):
    return DataLoader(self.load(True), batch_size=self.context.get_per_slot_batch_size())

def build_validation_data_loader(self):
    return DataLoader(self.load(False), batch_size=self.context.get_per_slot_batch_size())
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("determined")
    made = Shell(folder / "home", folder, EXAMPLE, {"OMP_NUM_THREADS": "1"})
    yield made
    made.clean_up()


def test_the_example_reaches_its_accuracy(shell: Shell, shared_data: Path) -> None:
    shell.variables["TREK_DATA_MIRROR"] = str(shared_data)
    done = shell.run("det", "experiment", "create", "-f", str(EXAMPLE / "const.yaml"), str(EXAMPLE), "--json")
    assert done.returncode == 0, done.stderr
    details = json.loads(done.stdout)
    assert (details["name"], details["trials"][0]["batches"]) == ("digits", 150)
    assert details["best_metric"] < 0.12, "an accuracy of 88 % after 150 batches"


@pytest.mark.skipif(not TUTORIAL.is_file(), reason="needs Determined's tutorial in ../shared")
def test_the_tutorials_own_code_and_config_reach_their_accuracy(shell: Shell, shared_data: Path) -> None:
    shell.variables["TREK_DATA_MIRROR"] = str(shared_data)
    folder = shell.folder / "tutorial"
    folder.mkdir()
    (folder / "model_def.py").write_text(tutorial_code())
    (folder / "const.yaml").write_text(block("description:"))
    shorter = ["--config", "searcher.max_steps=2", "--config", "hyperparameters.learning_rate=0.02"]
    done = shell.run("experiment", "create", str(folder / "const.yaml"), str(folder), *shorter, "--json")
    assert done.returncode == 0, done.stderr
    details = json.loads(done.stdout)
    assert (details["name"], details["trials"][0]["batches"]) == ("mnist_pytorch_const", 200)
    assert details["best_metric"] < 0.15, "an accuracy of 85 % after 200 batches"


def tutorial_code() -> str:
    """The functions of the tutorial, put together as it says, with what it leaves out: the fetching of the data."""
    error_rate, _, train_batch = block("def error_rate").partition("...\n\n")
    build_model = block("from determined.pytorch import reset_parameters").partition("...\n\n")[2]
    methods = [
        block("def __init__"),
        MISSING,
        build_model,
        block("def optimizer"),
        train_batch,
        block("def evaluate_batch"),
    ]
    return f"{IMPORTS}\n{error_rate}\nclass MNistTrial(PyTorchTrial):\n" + textwrap.indent("\n".join(methods), "    ")


def block(beginning: str) -> str:
    """A block of code of the tutorial."""
    found = re.findall(r"^\.\. code:: \w+\n\n((?:    .*\n|\n)+)", TUTORIAL.read_text(), flags=re.MULTILINE)
    return next(one for one in map(textwrap.dedent, found) if one.startswith(beginning))


def test_a_core_script_is_searched_over(shell: Shell) -> None:
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


def test_a_core_script_of_two_ranks_is_paused_and_goes_on_from_what_both_saved(shell: Shell) -> None:
    """It would train for hours: that it is paused and goes on does not depend on how fast it is."""
    config = ["--config", "searcher.max_length.batches=100000000", "--config", "hyperparameters.period=500"]
    created = shell.run(
        "experiment", "create", str(EXAMPLE / "core_ranks.yaml"), str(EXAMPLE), *config, "--no-follow", "--json"
    )
    assert "no effect here: determined.launch.torch_distributed in the entrypoint (the" in created.stderr
    number = str(json.loads(created.stdout)["id"])
    wait_until(lambda: shell.experiment(number)["trials"][0]["batches"] >= 500)
    assert shell.run("experiment", "pause", number).returncode == 0
    paused = shell.experiment(number)
    (trial,) = paused["trials"]
    assert paused["state"] == "paused"
    saved = shell.json("checkpoint", "describe", trial["checkpoint"])["batches"]
    assert saved >= 500
    assert shell.run("experiment", "activate", number).returncode == 0
    wait_until(lambda: f"rank 1 continues after step {saved}" in logged(shell, trial["id"]))
    wait_until(lambda: shell.experiment(number)["trials"][0]["batches"] > saved)
    assert f"rank 0 continues after step {saved}" in logged(shell, trial["id"])
    assert shell.run("experiment", "kill", number).returncode == 0


def logged(shell: Shell, trial: int) -> list[str]:
    return [line["text"] for line in shell.json("trial", "logs", str(trial))]


def test_a_core_script_of_two_ranks_trains_one_model(shell: Shell) -> None:
    done = shell.run("experiment", "create", str(EXAMPLE / "core_ranks.yaml"), str(EXAMPLE), "--json")
    assert done.returncode == 0, done.stderr
    details = json.loads(done.stdout)
    assert (details["state"], details["trials"][0]["batches"]) == ("completed", 40)
    assert details["best_metric"] < 1e-3, "the ranks have met in the middle"
    points = shell.json("trial", "metrics", str(details["trials"][0]["id"]), "--group", "training")
    assert [point["batches"] for point in points] == [10, 20, 30, 40], "reported once, not by every rank"


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
        with pytest.raises(NotFound, match="no checkpoint with the metric 'nothing'"):
            trial.top_checkpoint(sort_by="nothing", smaller_is_better=True)
        with pytest.raises(InputError, match="sort_by and smaller_is_better are set together"):
            again.top_checkpoint(sort_by="loss")
        with pytest.raises(InputError, match="includes is not supported"):
            client.create_experiment({}, EXAMPLE, ["more"])
        folder = top.download(str(tmp_path / "files"))
        assert trek.Checkpoint(folder).uuid == top.uuid
        model = client.create_model("line")
        assert model.register_version(top.uuid).version == 1
        assert client.get_model("line").get_version().checkpoint.uuid == top.uuid
        with pytest.raises(trek.TrekError, match=r"not found|does not exist"):
            client.get_experiment(999)
    finally:
        client.logout()
