"""Images prepared by the nodes of a Ray cluster and iterated as batches of tensors: Tables compared with Ray Data.

    python benchmarks/ray/images.py [--rows 60000] [--repeats 30]

Rows of 784 bytes become float32 of mean 0 in a function that runs on the nodes; the process that asks iterates over
batches of 128. A cluster of three raylets on this machine, whose workers and stores, large enough for all rows, both
use. Runs alternate after one of each, since memory that nobody has touched yet is slow, and wait for Ray to free the
rows of the one before. Medians of few runs vary by a factor of two here. Target: at least 3 times Ray Data.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import ray.data
import torch

import trek
from trek.data import Table, running_on
from trek.engines.ray.connection import connect
from trek.testing.ray_cluster import ray_cluster

sys.path.insert(0, str(Path(__file__).parent))
from tables import set_up_ray_data

BATCH, WIDTH, PARTITIONS, CPUS, TARGET = 128, 784, 8, 2, 3.0
STORE_BYTES, FREEING_S = 300 << 20, 2.0


def prepare(images: np.ndarray) -> np.ndarray:
    """What the nodes do with a batch."""
    values = images.astype(np.float32) / 255
    return values - values.mean(axis=1, keepdims=True)


def with_trek(images: np.ndarray, folder: Path, address: str) -> Iterator[torch.Tensor]:
    """A Table whose function runs on Ray."""
    with running_on("ray", address=address):
        ready = Table.of({"image": images}, num_partitions=PARTITIONS).map(lambda b: {"image": prepare(b["image"])})
        for (batch,) in ready.cache().batches(BATCH):
            yield batch


def with_ray_data(images: np.ndarray, folder: Path, address: str) -> Iterator[torch.Tensor]:
    """map_batches, iter_torch_batches."""
    data = ray.data.from_numpy(np.array_split(images, PARTITIONS))
    for batch in data.map_batches(lambda b: {"image": prepare(b["data"])}).iter_torch_batches(batch_size=BATCH):
        yield batch["image"]


def measure(run: Callable[..., Iterator[torch.Tensor]], images: np.ndarray, address: str) -> float:
    """Seconds from arrays to the last batch; rows and pixels are checked."""
    with tempfile.TemporaryDirectory() as folder:
        began, rows, checked = time.perf_counter(), 0, 0.0
        for batch in run(images, Path(folder), address):
            rows += len(batch)
            checked += float(batch[:, 0].sum())
        seconds = time.perf_counter() - began
    assert rows == len(images)
    assert abs(checked - float(prepare(images)[:, 0].astype(np.float64).sum())) < 1.0, "wrong pixels"
    return seconds


def main() -> None:
    """Run both, print rows per second and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    images = np.random.default_rng(0).integers(0, 256, (options.rows, WIDTH), dtype=np.uint8)
    runs = {"trek": with_trek, "ray data": with_ray_data}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with ray_cluster(num_nodes=3, cpus=CPUS, store_bytes=STORE_BYTES) as cluster:
        set_up_ray_data()
        connect(cluster.address)
        for _ in range(1 + options.repeats):
            for name, run in runs.items():
                time.sleep(FREEING_S)
                seconds[name].append(measure(run, images, cluster.address))
    medians = {name: statistics.median(taken[1:]) for name, taken in seconds.items()}
    for name, taken in seconds.items():
        rates = [options.rows / one / 1e3 for one in (medians[name], max(taken[1:]), min(taken[1:]))]
        print(f"{name:<10}{rates[0]:>6.0f} thousand rows/s ({rates[1]:.0f} to {rates[2]:.0f})")
    ratio = medians["ray data"] / medians["trek"]
    print(f"trek {trek.__version__} is {ratio:.2f}x ray data {ray.__version__}; target {TARGET:g}x")


if __name__ == "__main__":
    main()
