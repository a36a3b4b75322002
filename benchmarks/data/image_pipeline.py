"""Images through the data room: rows of 784 bytes → store → iterate batches of 128 as float32 / 128.

    python benchmarks/data/image_pipeline.py [--rows 200000] [--repeats 3]

The time is measured from arrays in memory to the last batch, including storage. Every contender stores the same bytes,
an array of uint8 a row, and casts each batch to float32.
Every contender first runs once with few rows, so that imports and the start of engines do not count; then runs
alternate, and the best of each counts. Install the peers with `pip install -e '.[bench]'`; missing ones are listed.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import trek

BATCH, WIDTH = 128, 784
Contender = Callable[[np.ndarray, Path], Iterator[torch.Tensor]]


def run_trek(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """A persisted Table."""
    table = trek.data.Table.of({"image": images}, num_partitions=2).persist(folder / "trek")
    for (batch,) in table.batches(BATCH):
        yield batch.float().div_(128)


def run_trek_arrow(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """A Table persisted as Arrow, mapped instead of read."""
    table = trek.data.Table.of({"image": images}, num_partitions=2).persist(folder / "trek-arrow", storage="arrow")
    for (batch,) in table.batches(BATCH):
        yield batch.float().div_(128)


def run_by_hand(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """An expert's hand-written Parquet loop: fixed-size binary, lz4, one cast per batch."""
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), len(images), [None, pa.py_buffer(images)])
    path = folder / "by-hand.parquet"
    pq.write_table(pa.table({"image": column}), path, compression="lz4", use_dictionary=False, row_group_size=20_000)
    for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH):
        rows = np.frombuffer(batch.column(0).buffers()[1], np.uint8, offset=batch.column(0).offset * WIDTH)
        yield torch.from_numpy(rows[: batch.num_rows * WIDTH].reshape(-1, WIDTH).astype(np.float32)).div_(128)


def run_numpy(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """The limit: nothing stored, bytes in memory, cast per batch."""
    for start in range(0, len(images), BATCH):
        yield torch.from_numpy(images[start : start + BATCH]).float().div_(128)


def run_polars(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """Polars: a column of arrays, Parquet, slices."""
    import polars as pl

    pl.DataFrame({"image": pl.Series(images)}).write_parquet(folder / "polars.parquet")
    for part in pl.read_parquet(folder / "polars.parquet").iter_slices(BATCH):
        yield torch.from_numpy(part["image"].to_numpy().astype(np.float32)).div_(128)


def run_hf_datasets(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """Hugging Face datasets: an Arrow table, save_to_disk, iterate with NumPy's format, which keeps uint8."""
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Array2D((1, WIDTH), "uint8")})
    column = pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), WIDTH)
    stored = pa.FixedSizeListArray.from_arrays(column, 1).cast(pa.list_(pa.list_(pa.uint8())))
    shaped = pa.ExtensionArray.from_storage(features["image"](), stored)
    datasets.Dataset(pa.table({"image": shaped})).save_to_disk(folder / "hf")
    for batch in datasets.load_from_disk(folder / "hf").with_format("numpy").iter(BATCH):
        yield torch.from_numpy(batch["image"].astype(np.float32)).div_(128)


def run_ray_data(images: np.ndarray, folder: Path) -> Iterator[torch.Tensor]:
    """Ray Data: from_numpy, write_parquet, iter_batches."""
    import ray

    if not ray.is_initialized():
        ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.from_numpy(images).write_parquet(str(folder / "ray"))
    for batch in ray.data.read_parquet(str(folder / "ray")).iter_batches(batch_size=BATCH):
        yield torch.from_numpy(batch["data"].astype(np.float32)).div_(128)


CONTENDERS: dict[str, tuple[Contender, str | None]] = {
    "trek": (run_trek, None),
    "trek (arrow)": (run_trek_arrow, None),
    "by hand": (run_by_hand, None),
    "numpy, nothing stored": (run_numpy, None),
    "polars": (run_polars, "polars"),
    "hf datasets": (run_hf_datasets, "datasets"),
    "ray data": (run_ray_data, "ray"),
}
TARGETS = {"by hand": 0.8, "polars": 3, "hf datasets": 6, "ray data": 10}


def measure(run: Contender, images: np.ndarray) -> float:
    """Seconds from arrays to the last batch; counts every row and checks one pixel of each."""
    folder = Path(tempfile.mkdtemp(prefix="trek-bench-"))
    try:
        began = time.perf_counter()
        rows, checked = 0, 0.0
        for batch in run(images, folder):
            rows += len(batch)
            checked += float(batch.reshape(len(batch), -1)[:, 0].sum())
        seconds = time.perf_counter() - began
    finally:
        shutil.rmtree(folder)
    expected = float((images[:, 0].astype(np.float64) / 128).sum())
    assert rows == len(images)
    assert abs(checked - expected) < 1e-3 * max(1.0, expected), "a contender returned wrong pixels"
    return seconds


def main() -> None:
    """Run all, print a table of thousand rows per second and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)  # casting a batch is too little work for several threads
    images = np.random.default_rng(0).integers(0, 256, (options.rows, WIDTH), dtype=np.uint8)
    images[:, WIDTH // 5 :] = 0  # most of a digit's image is blank
    present = {n: run for n, (run, module) in CONTENDERS.items() if module is None or importlib.util.find_spec(module)}
    best: dict[str, float] = {}
    for run in present.values():
        measure(run, images[:1024])
    for _ in range(options.repeats):
        for name, run in present.items():
            best[name] = min(best.get(name, float("inf")), measure(run, images))
    report(best, options.rows, missing=sorted(CONTENDERS.keys() - present.keys()))


def report(best: dict[str, float], rows: int, *, missing: list[Any]) -> None:
    """The table."""
    print(f"{'contender':<24}{'thousand rows/s':>16}{'trek is':>12}{'target':>8}")
    for name, seconds in sorted(best.items(), key=lambda item: item[1]):
        target = f"{TARGETS[name]:>7}x" if name in TARGETS else ""
        print(f"{name:<24}{rows / seconds / 1e3:>16.0f}{seconds / best['trek']:>11.2f}x{target}")
    if missing:
        print(f"not installed: {', '.join(missing)}")


if __name__ == "__main__":
    main()
