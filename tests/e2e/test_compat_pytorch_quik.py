"""pytorch-quik's own README: its blocks run with their import lines changed, and train."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

README = Path(__file__).resolve().parents[3] / "shared" / "seeds" / "pytorch-quik.md"
pytestmark = pytest.mark.skipif(not README.is_file(), reason="needs the README of pytorch-quik in ../shared")

IMPORTS = """\
import trek.compat.pytorch_quik as pq
import torch.distributed as dist
from torch.optim.lr_scheduler import OneCycleLR
"""
OPTIONS = ["--epochs", "3", "--bs", "16", "--learning_rate", "0.2"]
WEIGHTS = torch.tensor([1.0, -2.0, 0.5])


def block(beginning: str, *, holds: str) -> str:
    """The block of the README that begins and continues like this, with its import lines changed."""
    blocks = re.findall(r"``` ?python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    found = next(one for one in blocks if one.lstrip().startswith(beginning) and holds in one)
    return IMPORTS + found.replace("import pytorch_quik as pq\n", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a script runs: with the data that it reads."""
    (tmp_path / "data").mkdir()
    generator = torch.Generator().manual_seed(0)
    users, items = torch.randn(512, 2, generator=generator), torch.randn(512, 1, generator=generator)
    rows = TensorDataset(users, items, torch.cat([users, items], 1) @ WEIGHTS)
    torch.save(rows, tmp_path / "data" / "train_tensor_20210101.pt")
    return tmp_path


def run(source: str, folder: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> str:
    (folder / "script.py").write_text(source)
    command = [sys.executable, *launcher, "script.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def error_of(folder: Path, epoch: int | str) -> float:
    """How far the weights after an epoch are from those that made the data."""
    weights = torch.load(folder / "data" / f"state_dict_e{epoch}_20210101.pt", weights_only=True)
    assert sorted(weights) == ["0.bias", "0.weight"]
    return float((weights["0.weight"][0] - WEIGHTS).abs().max())


def test_the_whole_example_trains(folder: Path) -> None:
    printed = run(block("import pytorch_quik", holds="def main"), folder, *OPTIONS)
    rows = [line.split() for line in printed.splitlines()]
    assert rows[0] == ["epoch", "train_loss", "valid_loss", "time"]
    assert [row[1] for row in rows[1:]] == ["0", "1", "2"]
    assert float(rows[3][2]) < float(rows[1][2]) / 4
    assert error_of(folder, 2) < 0.2 < error_of(folder, "orig")


def test_it_trains_one_model_on_two_processes(folder: Path) -> None:
    """With mixed precision, and the other way of starting: `traverse` under a launcher."""
    source = block("import pytorch_quik", holds="def main").replace(
        "    train(args, gpu)", "    pq.ddp.traverse(train, args)"
    )
    assert "traverse" in source
    options = [*OPTIONS, "--mixed_precision"]
    run(source, folder, *options, launcher=("-m", "trek", "launch", "--workers", "2"))
    assert error_of(folder, 2) < 0.6 < error_of(folder, "orig")


def test_the_shortest_example_trains_with_the_arguments_a_script_sets(folder: Path) -> None:
    source = block("import pytorch_quik", holds="tr.criterion.step()")
    own = {"bs": 32, "lr": 0.05, "epochs": 3, "data_date": "20210101"}
    made = f"args = pq.arg.default_args()\npq.arg.update_args(args, {own})\ntrek = pq.travel.QuikTrek(args)"
    run(source.replace("trek = pq.travel.QuikTrek()", made), folder)
    assert error_of(folder, 2) < 0.2
