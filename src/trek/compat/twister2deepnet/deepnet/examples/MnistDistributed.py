"""`twister2deepnet.deepnet.examples.MnistDistributed`: the rows of MNIST that one worker trains on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trek.compat.twister2deepnet.deepnet.datasets.MNIST import MNIST
from trek.errors import InputError

_BATCH_ROWS = 128


class MnistDistributed:
    """Worker `world_rank`'s share of `parallelism` equal ones; the folder has a subfolder for each split.

    Where the rows cannot be divided equally, shares are filled up with rows from the beginning.
    """

    def __init__(self, source_dir: Path | str, parallelism: int = 1, world_rank: int = 0) -> None:
        if not 0 <= world_rank < parallelism:
            raise InputError(f"world_rank must be from 0 to {parallelism - 1}, got {world_rank!r}.")
        self._source_dir, self._parallelism, self._rank = Path(source_dir), parallelism, world_rank

    @property
    def train_data(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Images (n, 784), digits (n, 1), and the rows of a batch of this worker."""
        return self._share(is_train=True)

    @property
    def test_data(self) -> tuple[np.ndarray, np.ndarray, int]:
        """The same of the test split."""
        return self._share(is_train=False)

    def _share(self, *, is_train: bool) -> tuple[np.ndarray, np.ndarray, int]:
        images, digits = MNIST(self._source_dir / ("train" if is_train else "test"), train=is_train).load_data()
        rows = -(-len(images) // self._parallelism)
        own = np.arange(self._rank * rows, (self._rank + 1) * rows) % len(images)
        return images[own], digits[own].reshape(-1, 1), max(_BATCH_ROWS // self._parallelism, 1)
