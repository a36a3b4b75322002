"""Feeding training from a mapped table, compared with slicing and indexing a NumPy array.

    python benchmarks/data/feed.py [--rows 200000] [--repeats 15]

Every contender makes batches of 128 float32 images from bytes. Runs alternate, one epoch of each, and the CPU time of
the process counts, so that other load on the machine does not. The ratio is NumPy's time divided by Trek's, so 1 is as
fast: for the best epochs of both, and as the median over pairs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch

from trek.data import Table

BATCH = 128
Contender = Callable[[np.ndarray, Table], Iterator[torch.Tensor]]


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


def seconds_of(run: Contender, images: np.ndarray, table: Table) -> float:
    """CPU time for one epoch of reading and casting batches."""
    began = time.process_time()
    rows = sum(len(batch.float().div_(128)) for batch in run(images, table))
    seconds = time.process_time() - began
    assert rows == len(images)
    return seconds


def compare(title: str, runs: tuple[Contender, Contender], images: np.ndarray, table: Table, *, repeats: int) -> None:
    """Alternate between the two and print the ratio."""
    for run in runs:  # the first pass loads the pages of the mapping
        seconds_of(run, images, table)
    pairs = [(seconds_of(runs[0], images, table), seconds_of(runs[1], images, table)) for _ in range(repeats)]
    by_numpy, by_table = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    middle = median(numpy_s / table_s for numpy_s, table_s in pairs)
    speed = len(images) / by_table / 1e3
    print(f"{title}: {speed:.0f} thousand rows/s, {by_numpy / by_table:.2f} of NumPy (median of pairs {middle:.2f})")


def main() -> None:
    """Run both orders, print rows per second and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)  # casting a batch is too little work for several threads
    images = np.random.default_rng(0).integers(0, 256, (options.rows, 784), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        table = Table.of({"image": images}, num_partitions=2).persist(Path(folder) / "mapped", storage="arrow")
        compare("in order", (slice_numpy, slice_table), images, table, repeats=options.repeats)
        compare("shuffled", (index_numpy, index_table), images, table, repeats=options.repeats)


if __name__ == "__main__":
    main()
