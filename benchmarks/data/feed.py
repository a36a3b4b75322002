"""Feeding training from a mapped table, beside slicing (and indexing) a NumPy array.

    python benchmarks/data/feed.py [--rows 200000] [--repeats 5]

Every contender makes batches of 128 float32 pictures from bytes. The ratio is NumPy's time over Trek's: 1 is as fast.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from trek.data import Table

BATCH = 128


def slice_numpy(images: np.ndarray, table: Table) -> Iterator[torch.Tensor]:
    """Rows in order."""
    for start in range(0, len(images), BATCH):
        yield torch.from_numpy(images[start : start + BATCH])


def slice_table(images: np.ndarray, table: Table) -> Iterator[torch.Tensor]:
    """Rows in order."""
    for (batch,) in table.batches(BATCH):
        yield batch


def index_numpy(images: np.ndarray, table: Table) -> Iterator[torch.Tensor]:
    """Rows shuffled."""
    order = np.random.default_rng(0).permutation(len(images))
    for start in range(0, len(images), BATCH):
        yield torch.from_numpy(images[order[start : start + BATCH]])


def index_table(images: np.ndarray, table: Table) -> Iterator[torch.Tensor]:
    """Rows shuffled."""
    for (batch,) in table.batches(BATCH, shuffle=True):
        yield batch


def seconds_of(run: Callable[[np.ndarray, Table], Iterator[torch.Tensor]], images: np.ndarray, table: Table) -> float:
    """Time for one epoch of casting what comes."""
    began = time.perf_counter()
    rows = sum(len(batch.float().div_(128)) for batch in run(images, table))
    assert rows == len(images)
    return time.perf_counter() - began


def main() -> None:
    """Run pairs, print rows a second and the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)  # casting a batch is too little work to be worth waking other threads
    images = np.random.default_rng(0).integers(0, 256, (options.rows, 784), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        table = Table.of({"image": images}, num_partitions=2).persist(Path(folder) / "mapped", storage="arrow")
        for title, numpy_run, table_run in (
            ("in order", slice_numpy, slice_table),
            ("shuffled", index_numpy, index_table),
        ):
            times = [
                (seconds_of(numpy_run, images, table), seconds_of(table_run, images, table))
                for _ in range(options.repeats)
            ]
            by_numpy, by_table = min(t[0] for t in times), min(t[1] for t in times)
            speed = options.rows / by_table / 1e3
            print(f"{title}: {speed:.0f} thousand rows/s, {by_numpy / by_table:.2f} of NumPy")


if __name__ == "__main__":
    main()
