"""What a user's own script defines is found in every process that its training starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from collections import namedtuple
from functools import partial

import torch
from torch import nn

import trek

Row = namedtuple("Row", "x y")


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, row):
        return Row(torch.ones(3) * row, row)  # pickled by name by a worker of the DataLoader


def train(tr, scale):
    model = tr.add_model(nn.Linear(3, 1))
    data = tr.add_loader(Rows(), batch_size=4, num_workers=1)
    return sum(batch.y.sum().item() * scale for _ in tr.epochs(1) for batch in tr.train(data))


class Fits(trek.Trial):
    def build_model(self):
        return nn.Linear(3, 1)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.0)

    def build_training_data_loader(self):
        return trek.DataLoader(Rows(), 4, num_workers=1)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, model):
        return {"loss": model(batch.x).mean()}

    def evaluate_batch(self, batch, model):
        return {"rows": batch.y.double().mean()}


CALLS
"""
FIT = "trek.fit(Fits, hparams={}, max_length=trek.batches(2), workers=2, show_progress=False)"
CALLS = {
    "print(trek.run(train, 1, workers=2, show_progress=False))": "90",
    "print(trek.run(partial(train, scale=1), workers=2, show_progress=False))": "90",
    f"print({FIT}.best['rows'])": "9.5",
}


@pytest.mark.parametrize("call", CALLS)
def test_classes_of_the_script_travel_to_the_workers_of_a_loader(call: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("CALLS", call))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[-1] == CALLS[call]
