"""`torchvision.datasets`: MNIST, from the idx files in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

import trek
from trek.errors import DataUnavailable

_PREFIXES = {True: "train", False: "t10k"}
_PLACES = ("", "MNIST/raw", "raw")


class MNIST(Dataset[tuple[Any, Any]]):
    """Handwritten digits: `data` are images of 28×28 bytes, `targets` their digits.

    The files are looked for in `root`; with `download`, they are fetched to it, verified by checksum.
    """

    def __init__(
        self,
        root: Path | str,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        if download:
            trek.data.fetch_files("mnist", split="train" if train else "test", folder=root)
        prefix = _PREFIXES[train]
        self.data = _read(_find(Path(root), f"{prefix}-images-idx3-ubyte"))
        self.targets = _read(_find(Path(root), f"{prefix}-labels-idx1-ubyte")).long()
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = self.data[index]
        target: Any = int(self.targets[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    @property
    def train_data(self) -> torch.Tensor:
        """The older name of `data`."""
        return self.data

    @property
    def train_labels(self) -> torch.Tensor:
        """The older name of `targets`."""
        return self.targets

    test_data = train_data
    test_labels = train_labels


def _find(root: Path, name: str) -> Path:
    for place in _PLACES:
        for path in (root / place / f"{name}.gz", root / place / name):
            if path.is_file():
                return path
    raise DataUnavailable(f"{name} not found in {root}. Pass download=True, or the folder that has it.")


def _read(path: Path) -> torch.Tensor:
    return trek.data.open(path).to_torch()["value"]
