"""ElasticDL's elastic loop with a worker that is really killed, and what it does alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import trek

NUM_RECORDS, NUM_EPOCHS, BATCH = 38, 3, 4
LOOP = """
import os, signal, sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from trek.compat.elasticdl.controller import DistributedOptimizer, create_elastic_controller

class Points(Dataset):
    def __init__(self, service):
        self.service = service

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, _):
        index = self.service.fetch_record_index()
        x = torch.tensor([index / 40])
        return torch.tensor(index), x, 3 * x + 1

def train_one_batch(x, y):
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()

folder, rank = Path(sys.argv[1]), int(os.environ["TREK_RANK"])
size, epochs, batch_size = map(int, sys.argv[2:])
controller = create_elastic_controller(batch_size=batch_size, dataset_size=size, num_epochs=epochs, shuffle=True)
model = torch.nn.Linear(1, 1)
torch.nn.init.zeros_(model.weight), torch.nn.init.zeros_(model.bias)
optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5))
controller.set_broadcast_model(model)
controller.set_broadcast_optimizer(optimizer)
run = controller.elastic_run(train_one_batch)
loader = DataLoader(Points(controller.data_shard_service), batch_size)
with controller.scope():
    for number, (indices, x, y) in enumerate(loader):
        run(x, y)
        with (folder / f"{os.getpid()}.txt").open("a") as ledger:
            print(*indices.tolist(), file=ledger)
        if number == 3 and rank == 1 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
print("weights", model.weight.item(), model.bias.item(), flush=True)
"""


def plain_weights() -> list[float]:
    """What plain PyTorch has after the same global batches."""
    model = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    filled = torch.arange(-(-NUM_RECORDS // (2 * BATCH)) * 2 * BATCH) % NUM_RECORDS
    with trek.Traveler(show_progress=False) as tr:
        data = tr.add_loader((filled,), global_batch_size=2 * BATCH, shuffle=True)
        for _ in tr.epochs(NUM_EPOCHS):
            for (indices,) in tr.train(data):
                x = indices[:, None] / 40
                optimizer.zero_grad()
                F.mse_loss(model(x), 3 * x + 1).backward()
                optimizer.step()
    return [model.weight.item(), model.bias.item()]


def test_a_killed_worker_is_replaced_and_every_record_is_trained(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    words = [str(tmp_path), *map(str, (NUM_RECORDS, NUM_EPOCHS, BATCH))]
    command = [sys.executable, "-m", "trek", "launch", "--workers", "2:2", str(tmp_path / "loop.py"), *words]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    assert "worker 1 was lost" in done.stderr
    ends = {tuple(map(float, found)) for found in re.findall(r"weights (\S+) (\S+)", done.stdout)}
    assert len(ends) == 1, "both workers have the same"
    assert list(ends.pop()) == pytest.approx(plain_weights(), rel=1e-5)
    trained = Counter(int(word) for path in tmp_path.glob("*.txt") for word in path.read_text().split())
    assert set(trained) == set(range(NUM_RECORDS))
    assert min(trained.values()) >= NUM_EPOCHS
