"""Overhead of the loop: Trek compared with hand-written loops and installed trainers, one process, one thread.

    python benchmarks/train/one_process.py [--rows 20000] [--repeats 5] [--model mlp|cnn]

Every contender trains the same model for one epoch on the same rows in batches of 64 with SGD. Runs are interleaved and
the best time of each counts, so that other load on the machine affects all alike. Trek runs a Trial through the Trainer
with metrics, reports to a file and the progress bar enabled. Peers that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TREK_HOME", tempfile.mkdtemp())

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import trek
from trek.train.callbacks.callback import Callback

BATCH = 64
Contender = Callable[[Any, str], float]


def make_model(kind: str) -> nn.Module:
    """The MLP, dominated by overhead, or the CNN, dominated by compute."""
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*convolutions, nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def make_data(rows: int) -> TensorDataset:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(rows, 1, 28, 28, generator=generator)
    return TensorDataset(images, torch.randint(0, 10, (rows,), generator=generator))


class RowByRow(Dataset[Any]):
    """Hides that the dataset is in memory."""

    def __init__(self, data: TensorDataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, row: int) -> Any:
        return self._data[row]


# -- the hand-written loops


def hand_dataloader(data: Dataset[Any], kind: str) -> float:
    """The usual loop."""
    model = make_model(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, BATCH, shuffle=True)
    start = time.perf_counter()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start


def hand_indexed(data: TensorDataset, kind: str) -> float:
    """A fast loop that indexes tensors directly."""
    model = make_model(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = data.tensors
    start = time.perf_counter()
    for rows in torch.randperm(len(images)).split(BATCH):
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start


def hand_row_by_row(data: TensorDataset, kind: str) -> float:
    """A DataLoader over a dataset that is read row by row."""
    return hand_dataloader(RowByRow(data), kind)


# -- Trek


class Clock(Callback):
    """Times the epoch from the request of the first batch to the end of the last step."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.seconds = -time.perf_counter()

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.seconds += time.perf_counter()


class BenchTrial(trek.Trial):
    """The same training as a Trial."""

    def build_model(self) -> nn.Module:
        return make_model(self.context.get_hparam("kind"))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def build_training_data_loader(self) -> Any:
        return self.context.get_data_config()["loader"]

    def build_validation_data_loader(self) -> Any:
        return trek.DataLoader((torch.zeros(64, 1, 28, 28), torch.zeros(64, dtype=torch.long)), 64)

    def build_callbacks(self) -> dict[str, Callback]:
        return {"clock": self.context.get_data_config()["clock"]}

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"loss": F.cross_entropy(model(x), y)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        x, y = batch
        return {"validation_loss": F.cross_entropy(model(x), y)}


def trek_trial(data: TensorDataset, kind: str) -> float:
    """A Trial over tensors in memory."""
    return _fit(trek.DataLoader(data, BATCH, shuffle=True), kind)


def trek_row_by_row(data: TensorDataset, kind: str) -> float:
    """A Trial with a torch DataLoader over a dataset that is read row by row."""
    return _fit(DataLoader(RowByRow(data), BATCH, shuffle=True), kind)


def _fit(loader: Any, kind: str) -> float:
    clock = Clock()
    data = {"loader": loader, "clock": clock}
    trek.fit(BenchTrial, hparams={"kind": kind}, data=data, max_length=trek.epochs(1))
    return clock.seconds


# -- peers


def fabric(data: TensorDataset, kind: str) -> float:
    """Lightning Fabric."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model = make_model(kind)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = fabric.setup_dataloaders(DataLoader(data, BATCH, shuffle=True))
    start = time.perf_counter()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start


def accelerate(data: TensorDataset, kind: str) -> float:
    """Hugging Face Accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = make_model(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH, shuffle=True))
    start = time.perf_counter()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start


CONTENDERS: dict[str, tuple[Contender, str | None]] = {
    "hand-written, DataLoader": (hand_dataloader, None),
    "hand-written, tensors indexed": (hand_indexed, None),
    "Trek Trial": (trek_trial, None),
    "hand-written, DataLoader, row by row": (hand_row_by_row, None),
    "Trek Trial, torch DataLoader, row by row": (trek_row_by_row, None),
    "Lightning Fabric": (fabric, "lightning"),
    "Accelerate": (accelerate, "accelerate"),
}


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = make_data(args.rows)
    present = {n: c for n, (c, needs) in CONTENDERS.items() if needs is None or importlib.util.find_spec(needs)}
    times: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(args.repeats):
        for name, contender in present.items():
            times[name].append(contender(data, args.model))
    best = {name: min(taken) for name, taken in times.items()}
    steps = -(-args.rows // BATCH)
    print(f"{args.model}, {args.rows} rows, batch {BATCH}, torch {torch.__version__}, best of {args.repeats}")
    print(f"{'':44}{'samples/s':>10}{'µs/step':>11}{'of DataLoader':>15}{'of indexed':>12}")
    for name, seconds in best.items():
        ratios = [best["hand-written, DataLoader"] / seconds, best["hand-written, tensors indexed"] / seconds]
        print(f"{name:44}{args.rows / seconds:10.0f}{seconds / steps * 1e6:11.0f}{ratios[0]:15.2f}{ratios[1]:12.2f}")


if __name__ == "__main__":
    main()
