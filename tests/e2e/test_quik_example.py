"""The explicit loop of examples/quik as people start it: one process, two, and from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "quik" / "train.py"
SMALL = ["--rows", "3000", "--epochs", "2", "--no-progress"]
PYTHON = [sys.executable, str(SCRIPT)]
LAUNCH = [sys.executable, "-m", "trek", "launch", "--workers", "2", str(SCRIPT)]


def run(*command: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, "TREK_HOME": str(cwd / "home")},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("[rank 0] ") for line in done.stdout.splitlines()]


def losses(table: list[str]) -> list[list[float]]:
    """train_loss and valid_loss by epoch, as printed."""
    assert table[0].split() == ["epoch", "train_loss", "valid_loss", "time"]
    return [[float(value) for value in line.split()[1:3]] for line in table[1:]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[float]]]:
    """One process with batches of 128: where it ran, and its losses."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, losses(run(*PYTHON, "--workers", "1", *SMALL, cwd=folder))


def test_the_loop_learns_and_leaves_the_weights_of_every_epoch(alone: tuple[Path, list[list[float]]]) -> None:
    folder, ((first, _), (second, _)) = alone
    assert second < 0.8 * first
    weights = {path.stem: load_file(path) for path in (folder / "data").iterdir()}
    assert set(weights) == {"state_dict_eorig", "state_dict_e0", "state_dict_e1"}
    assert not torch.equal(weights["state_dict_eorig"]["users.weight"], weights["state_dict_e1"]["users.weight"])


@pytest.mark.parametrize("command", [[*PYTHON, "--workers", "2"], LAUNCH], ids=["own processes", "launched"])
def test_two_processes_learn_what_one_does(
    command: list[str], alone: tuple[Path, list[list[float]]], tmp_path: Path
) -> None:
    """128 ratings a step in all cases, so the losses agree but for rounding."""
    table = losses(run(*command, "--bs", "64", *SMALL, cwd=tmp_path))
    for row, expected in zip(table, alone[1], strict=True):
        assert row == pytest.approx(expected, rel=1e-3)
    assert len(list((tmp_path / "data").iterdir())) == 3
    assert [path.name for path in (tmp_path / "home" / "runs").iterdir()] == ["train"]  # one run, not one a process


def test_a_default_is_shown_and_a_wrong_argument_is_named(tmp_path: Path) -> None:
    shown = " ".join(run(*PYTHON, "--help", cwd=tmp_path))
    assert "0.05" in shown
    done = subprocess.run([*PYTHON, "--speed", "3"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert "--speed" in done.stderr
