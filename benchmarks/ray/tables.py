"""A function, a join and a group-by over Parquet files on a Ray cluster: Tables compared with Ray Data.

    python benchmarks/ray/tables.py [--left 2000000] [--right 200000] [--repeats 3] [--divided]

A cluster of three raylets on this machine, which both use through one connection; runs alternate after one with few
rows. The function runs on the nodes. Tables then join and group with Polars in the process that asks, or with --divided
by tasks on the nodes; Ray Data with its shuffle on the nodes. Target: at least 3 times Ray Data.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray.data

import trek
from trek.data import running_on
from trek.engines.ray.connection import connect
from trek.testing.ray_cluster import ray_cluster

PARTITIONS, FILES, CPUS, TARGET = 2, 4, 4, 3.0


def with_trek(folder: Path, address: str, *, divided: bool) -> float:
    """The sum over all groups."""
    with running_on("ray", address=address, divides_relations=divided):
        left = trek.data.open(folder / "left").map(lambda batch: {**batch, "value": batch["value"] * 2})
        joined = left.join(trek.data.open(folder / "right"), on="key")
        return float(joined.reduce({"value": "sum"}, by="group").to_numpy()["value"].sum())


def with_ray_data(folder: Path, address: str) -> float:
    """The same by map_batches, join and groupby."""
    left = ray.data.read_parquet(str(folder / "left"))
    left = left.map_batches(lambda batch: {**batch, "value": batch["value"] * 2})
    right = ray.data.read_parquet(str(folder / "right"))
    joined = left.join(right, join_type="inner", num_partitions=PARTITIONS, on=("key",))
    return float(sum(row["sum(value)"] for row in joined.groupby("group").sum("value").take_all()))


def write(folder: Path, *, left: int, right: int) -> None:
    """Both tables as Parquet files."""
    rng = np.random.default_rng(0)
    tables = {
        "left": pa.table({"key": rng.integers(0, right, left), "value": rng.random(left)}),
        "right": pa.table({"key": rng.permutation(right), "group": rng.integers(0, 1000, right)}),
    }
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        size = -(-table.num_rows // FILES)
        for number in range(FILES):
            pq.write_table(table.slice(number * size, size), folder / name / f"{number}.parquet")


def main() -> None:
    """Run both, print seconds and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--left", type=int, default=2_000_000)
    parser.add_argument("--right", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--divided", action="store_true", help="Tables join and group on the nodes, too.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ray_cluster(num_nodes=3, cpus=CPUS) as cluster:
        set_up_ray_data()
        connect(cluster.address)
        folder = Path(name)
        write(folder / "few", left=1000, right=100)
        write(folder / "all", left=options.left, right=options.right)
        runs = {"trek": partial(with_trek, divided=options.divided), "ray data": with_ray_data}
        report(measure(runs, folder, cluster.address, repeats=options.repeats), options.left)


def set_up_ray_data() -> None:
    """Without much printing, and so that it finishes on a small cluster."""
    warnings.simplefilter("ignore")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    # Its newer reader of Parquet waits for ever for actors that a cluster of 12 CPUs has no room for.
    context.use_datasource_v2 = False
    context.default_hash_shuffle_parallelism = PARTITIONS  # else 200 tasks for 1,000 groups
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def measure(
    runs: dict[str, Callable[[Path, str], float]], folder: Path, address: str, *, repeats: int
) -> dict[str, float]:
    """The best seconds of each; both must find the same sum."""
    best: dict[str, float] = {}
    for run in runs.values():
        run(folder / "few", address)
    for _ in range(repeats):
        totals = set()
        for name, run in runs.items():
            began = time.perf_counter()
            totals.add(round(run(folder / "all", address), 3))
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - began)
        assert len(totals) == 1, f"contenders disagree: {totals}"
    return best


def report(best: dict[str, float], rows: int) -> None:
    """Seconds, and how many times Ray Data's speed is Trek's."""
    for name, seconds in best.items():
        print(f"{name:<10}{seconds:>8.2f} s {rows / seconds / 1e6:>8.2f} million rows/s")
    print(f"trek is {best['ray data'] / best['trek']:.2f}x ray data {ray.__version__}; target {TARGET:g}x")


if __name__ == "__main__":
    main()
