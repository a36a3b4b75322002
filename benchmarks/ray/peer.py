"""The same training by Trek and by Ray Train: a small network on made-up points, data parallel over gloo."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import torch
from torch import nn

import trek

NUM_ROWS = 1 << 14
BATCH = 64


def make_model() -> nn.Module:
    """Three layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and labels."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(NUM_ROWS, 64, generator=generator), torch.randint(10, (NUM_ROWS,), generator=generator)


class Marks:
    """Writes when the first step was trained, and how many seconds those after the first ten took."""

    def __init__(self, path: str, *, is_leader: bool) -> None:
        self._path = Path(path)
        self._is_leader = is_leader
        self._began = 0.0
        self._count = 0

    def step(self) -> None:
        """A step was trained."""
        self._count += 1
        if self._count == 1 and self._is_leader:
            self._path.write_text(str(time.time()))
        if self._count == 10:
            self._began = time.perf_counter()

    def end(self) -> None:
        """All steps were trained."""
        if self._is_leader and self._count > 10:
            rate = (self._count - 10) / (time.perf_counter() - self._began)
            self._path.with_suffix(".rate").write_text(str(rate))


def _trek_loop(tr: trek.Traveler, num_steps: int, mark: str) -> None:
    model = tr.add_model(make_model())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    data = tr.add_loader(make_data(), batch_size=BATCH, shuffle=True)
    marks, done = Marks(mark, is_leader=tr.world.is_leader), 0
    while done < num_steps:
        for inputs, labels in tr.train(data):
            tr.backward(nn.functional.cross_entropy(model(inputs), labels))
            tr.step(optimizer)
            marks.step()
            done += 1
            if done == num_steps:
                break
    marks.end()


def train_on_trek(*, workers: int, num_steps: int, mark: str) -> None:
    """By `trek.run` on Ray."""
    options = {"placement": "PACK"}
    trek.run(_trek_loop, num_steps, mark, workers=workers, strategy="ddp", engine="ray", engine_options=options)


def _ray_loop(config: dict[str, Any]) -> None:
    import ray.train
    import ray.train.torch
    from torch.utils.data import DataLoader, TensorDataset

    model = ray.train.torch.prepare_model(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = ray.train.torch.prepare_data_loader(DataLoader(TensorDataset(*make_data()), BATCH, shuffle=True))
    marks, done = Marks(config["mark"], is_leader=ray.train.get_context().get_world_rank() == 0), 0
    while done < config["num_steps"]:
        for inputs, labels in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            marks.step()
            done += 1
            if done == config["num_steps"]:
                break
    marks.end()


def train_on_ray(*, workers: int, num_steps: int, mark: str) -> None:
    """By Ray Train."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            _ray_loop,
            train_loop_config={"num_steps": num_steps, "mark": mark},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=folder),
        ).fit()


def environment() -> dict[str, str]:
    """What was measured with what."""
    return {
        "ray": ray.__version__,
        "trek": trek.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
