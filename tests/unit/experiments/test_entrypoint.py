"""Entrypoints: found without running anything, loaded with errors that are the user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.errors import ConfigError, EntrypointError, TrainingError
from trek.experiments.config import ExperimentConfig
from trek.experiments.entrypoint import check_entrypoint, load_entrypoint
from trek.experiments.hparams import hparams

TRIAL = """
import trek
class Good(trek.Trial):
    def __init__(self, context): self.context = context
    def build_training_data_loader(self): ...
    def build_validation_data_loader(self): ...
    def train_batch(self, batch, model, epoch_idx, batch_idx): ...
    def evaluate_batch(self, batch, model): ...
class NoTrain(trek.Trial):
    def __init__(self, context): self.context = context
    def build_training_data_loader(self): ...
    def build_validation_data_loader(self): ...
class NoTrial: pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "my_model.py").write_text(TRIAL)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_a_module_that_is_not_there_is_found_out_without_running_anything(folder: Path) -> None:
    with pytest.raises(EntrypointError, match=r"module 'other' not found.*It has: my_model"):
        check_entrypoint("other:Good", folder)


def test_a_class_that_is_not_there_is_found_out_without_running_anything(folder: Path) -> None:
    with pytest.raises(EntrypointError, match=r"no 'Bad'\. It has: Good, NoTrain, NoTrial"):
        check_entrypoint("my_model:Bad", folder)


@pytest.mark.parametrize("text", ["from x import *", "from x import Good", "Good = make()", "if 1:\n  class Good: ..."])
def test_a_name_that_comes_from_elsewhere_passes_the_early_check(folder: Path, text: str) -> None:
    (folder / "facade.py").write_text(text)
    check_entrypoint("facade:Good", folder)


def test_a_package_of_the_folder_is_found(folder: Path) -> None:
    (folder / "net").mkdir()
    (folder / "net" / "__init__.py").write_text("class Good: ...")
    check_entrypoint("net:Good", folder)


def test_a_trial_is_loaded(folder: Path) -> None:
    assert load_entrypoint("my_model:Good", folder).__name__ == "Good"


@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        ("missing_module:Good", "module 'missing_module' not found"),
        ("my_model:Bad", "has no 'Bad'"),
        ("my_model:NoTrial", "is not a Trial"),
        ("my_model:NoTrain", "must define train_batch"),
    ],
)
def test_what_is_no_trial_is_refused(folder: Path, entrypoint: str, words: str) -> None:
    with pytest.raises(EntrypointError, match=words):
        load_entrypoint(entrypoint, folder)


def test_an_error_while_importing_shows_the_users_frames_alone(folder: Path) -> None:
    (folder / "broken.py").write_text("def boom():\n    raise KeyError('inside')\nboom()\n")
    with pytest.raises(TrainingError) as caught:
        load_entrypoint("broken:Good", folder)
    text = caught.value.traceback_text
    assert "broken.py" in text
    assert "KeyError: 'inside'" in text
    assert "entrypoint.py" not in text
    assert "importlib" not in text


def test_a_missing_package_inside_the_users_module_is_the_users_error(folder: Path) -> None:
    (folder / "needy.py").write_text("import package_that_is_not_there\n")
    with pytest.raises(TrainingError, match="package_that_is_not_there"):
        load_entrypoint("needy:Good", folder)


def config(entrypoint: object, **changes: object) -> ExperimentConfig:
    searcher = {"name": "single", "metric": "m", "max_length": 1}
    return ExperimentConfig.parse({"entrypoint": entrypoint, "searcher": searcher, **changes})


@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        ("python train.py --lr 0.1", ["python", "train.py", "--lr", "0.1"]),
        ("python train.py 'two words'", ["python", "train.py", "two words"]),
        ("./train.sh", ["./train.sh"]),
        (["python", "-m", "my.train"], ["python", "-m", "my.train"]),
        ("model_def:Trial", None),
    ],
)
def test_an_entrypoint_is_a_trial_or_the_words_of_a_command(entrypoint: object, words: list[str] | None) -> None:
    read = config(entrypoint)
    assert read.command == words
    assert ExperimentConfig.parse(read.normal_form()) == read


@pytest.mark.parametrize("entrypoint", ["model_def", "model_def.Trial", "model_def:", "python 'train.py", [], [""], ""])
def test_what_is_neither_is_refused(entrypoint: object) -> None:
    with pytest.raises(ConfigError, match="entrypoint"):
        config(entrypoint)


def test_a_command_is_looked_for_in_its_folder(folder: Path) -> None:
    check_entrypoint(["python", "my_model.py"], folder)
    check_entrypoint(["python", "-m", "anything"], folder)
    with pytest.raises(EntrypointError, match=r"It has: my_model\.py"):
        check_entrypoint(["python", "train.py"], folder)
    with pytest.raises(EntrypointError, match=r"program '\./go' not found"):
        check_entrypoint(["./go"], folder)


def test_hyperparameters_of_the_trial_lie_over_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hparams(lr=0.1, depth=2) == {"lr": 0.1, "depth": 2}
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr("trek.experiments.exit_report._is_installed", False)
    monkeypatch.setenv("TREK_HPARAMS", '{"lr": 0.5}')
    assert hparams(lr=0.1, depth=2) == {"lr": 0.5, "depth": 2}
