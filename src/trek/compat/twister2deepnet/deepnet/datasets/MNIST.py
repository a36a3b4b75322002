"""`twister2deepnet.deepnet.datasets.MNIST`: the files of MNIST in a folder, verified by checksum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import trek
from trek.compat.torchvision import datasets


class MNIST:
    """One split; `download` fetches what is missing, truncated or different."""

    def __init__(
        self, source_dir: Path | str, train: bool = True, transform: Callable[[Any], Any] | None = None
    ) -> None:
        self.source_dir = Path(source_dir)
        self.train = train
        self.transform = transform

    def download(self) -> None:
        """Have the files in `source_dir`."""
        trek.data.fetch_files("mnist", split="train" if self.train else "test", folder=self.source_dir)

    def load_data(self) -> tuple[np.ndarray, np.ndarray]:
        """Images as rows of 784 bytes, and their digits."""
        found = datasets.MNIST(self.source_dir, train=self.train)
        images = found.data.reshape(len(found), -1).numpy()
        return (self.transform(images) if self.transform else images), found.targets.numpy()
