"""A Trial with every kind of data, sampler and scheduler, and comparison of checkpoints, for tests of resuming."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, IterableDataset, RandomSampler, Sampler, WeightedRandomSampler

from trek.data.loaders import DataLoader
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.trial import Trial

NUM_ROWS = 22


class NumberedRows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows with their number, and noise from the global generator."""

    def __len__(self) -> int:
        return NUM_ROWS

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(row), torch.arange(3.0) + row / 10 + 0.1 * torch.rand(3)


class RowsWithGenerator(NumberedRows):
    """Noise from a generator of the dataset's own, which nobody seeded."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(7)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(row), torch.arange(3.0) + torch.from_numpy(self._rng.random(3)).float()


class RowStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """The rows in order, with noise from the global generator."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        rows = NumberedRows()
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return (rows[row] for row in range(first, NUM_ROWS, step))


class ShuffledStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """The rows in an order of a generator of the stream's own."""

    def __init__(self) -> None:
        self._random = random.Random(3)  # noqa: S311

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = self._random.sample(range(NUM_ROWS), NUM_ROWS)
        return (NumberedRows()[row] for row in order)


class PlainBatches:
    """An iterable of batches, shuffled by the global generator at its start."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(NUM_ROWS).split(self._batch_size):  # type: ignore[no-untyped-call]
            yield rows, rows[:, None] / 10 + torch.rand(len(rows), 3)


class NumpySampler(Sampler[int]):
    """Draws from NumPy, with a generator of its own."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(5)

    def __len__(self) -> int:
        return NUM_ROWS

    def __iter__(self) -> Iterator[int]:
        return iter(self._rng.permutation(NUM_ROWS).tolist())


class InPlaceSampler(Sampler[int]):
    """Shuffles its own list, so that an epoch's order depends on that of the epoch before."""

    def __init__(self) -> None:
        self._rows = list(range(NUM_ROWS))

    def __len__(self) -> int:
        return NUM_ROWS

    def __iter__(self) -> Iterator[int]:
        random.shuffle(self._rows)
        return iter(list(self._rows))


class CountingSampler(Sampler[int]):
    """Seeds every epoch by how often it was iterated."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return NUM_ROWS

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(self.epoch)).tolist())


class UnevenBatches(Sampler[list[int]]):
    """A batch sampler with batches of one to five rows, from a generator of its own."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(9)

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(NUM_ROWS, generator=self._generator).tolist()
        for first, last in zip((0, 5, 7, 8, 12, 15, 16, 20), (5, 7, 8, 12, 15, 16, 20, 22), strict=True):
            yield order[first:last]


def _loader(kind: str, size: int, num_workers: int) -> Any:
    rows = NumberedRows()
    torch_kinds: dict[str, Any] = {
        "torch": lambda: {"batch_size": size, "shuffle": True},
        "random": lambda: {"batch_size": size, "sampler": RandomSampler(rows, generator=torch.Generator())},
        "replacing": lambda: {"batch_size": size, "sampler": RandomSampler(rows, replacement=True, num_samples=20)},
        "weighted": lambda: {
            "batch_size": size,
            "sampler": WeightedRandomSampler([0.1 + row for row in range(NUM_ROWS)], 22),
        },
        "numpy": lambda: {"batch_size": size, "sampler": NumpySampler()},
        "in_place": lambda: {"batch_size": size, "sampler": InPlaceSampler(), "drop_last": True},
        "counting": lambda: {"batch_size": size, "sampler": CountingSampler()},
        "batch_sampler": lambda: {"batch_sampler": UnevenBatches()},
    }
    if kind in torch_kinds:
        return TorchDataLoader(rows, num_workers=num_workers, **torch_kinds[kind]())
    if kind in ("trek", "trek_shuffled"):
        return DataLoader(rows, size, shuffle=kind == "trek_shuffled", num_workers=num_workers)
    if kind == "own_noise":
        return TorchDataLoader(RowsWithGenerator(), size, shuffle=True, num_workers=num_workers)
    if kind == "plain":
        return PlainBatches(size)
    return TorchDataLoader({"stream": RowStream, "own_stream": ShuffledStream}[kind](), size, num_workers=num_workers)


DATA = (
    *("trek", "trek_shuffled", "torch", "random", "replacing", "weighted", "numpy", "in_place", "counting"),
    *("batch_sampler", "own_noise", "plain", "stream", "own_stream"),
)
SCHEDULERS = ("none", "batch", "epoch", "cosine", "one_cycle", "restarts")


class ResumedTrial(Trial):
    """A small network with dropout; it writes down the rows that it trains on.

    Hyperparameters: `data` (of `DATA`), `scheduler` (of `SCHEDULERS`), `global_batch_size`, `num_workers`, `adam`.
    """

    rows: list[list[int]]
    """By batch; set it before a run in this process."""

    def build_model(self) -> nn.Module:
        """Two layers, with dropout between them."""
        return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 1))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Plain SGD, which has no state, or Adam."""
        kind = torch.optim.Adam if self.context.get_hparams().get("adam") else torch.optim.SGD
        return kind(model.parameters(), lr=0.01)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        """One of each kind."""
        made: dict[str, Any] = {
            "none": lambda: None,
            "batch": lambda: (lr_scheduler.ExponentialLR(optimizer, 0.9), "batch"),
            "epoch": lambda: (lr_scheduler.StepLR(optimizer, 1, 0.5), "epoch"),
            "cosine": lambda: (lr_scheduler.CosineAnnealingLR(optimizer, T_max=5), "batch"),
            "one_cycle": lambda: (lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40), "step"),
            "restarts": lambda: (lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2), "epoch"),
        }
        return made[self.context.get_hparams().get("scheduler", "none")]()

    def build_training_data_loader(self) -> Any:
        """The chosen kind."""
        hparams = self.context.get_hparams()
        size = self.context.get_per_slot_batch_size()
        return _loader(hparams.get("data", "trek_shuffled"), size, hparams.get("num_workers", 0))

    def build_validation_data_loader(self) -> Any:
        """All rows, without noise."""
        rows = torch.arange(NUM_ROWS)
        return DataLoader((rows, rows[:, None] / 10 + torch.arange(3.0)), 10)

    def train_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """Mean squared output."""
        rows, values = batch
        type(self).rows.append(rows.tolist())
        return {"loss": model(values).square().mean()}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        """The same, without dropout."""
        return {"validation_loss": model(batch[1]).square().mean()}


def saved_state(path: Path) -> Any:
    """Everything in a checkpoint but the times, and the places where reading would start again."""
    read = CheckpointFolder(path).read()
    read.shared["journal"].pop("epoch_seconds")
    for row in read.shared["journal"]["table"]["rows"]:
        row.pop("time_s")
    for rank in read.ranks:
        rank["feed"] = rank["feed"]["random"]
    return {"models": read.models, "shared": read.shared, "ranks": read.ranks}


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Paths at which two nested values differ by a bit."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from differences(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for index, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{path}/{index}")
    elif isinstance(one, torch.Tensor | np.ndarray):
        if not torch.equal(torch.as_tensor(one), torch.as_tensor(other)):
            yield path
    elif one != other and not (one != one and other != other):
        yield path
