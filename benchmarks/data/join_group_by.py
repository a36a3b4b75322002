"""A join and a group-by: Trek compared with Polars and plain Arrow on the same rows.

    python benchmarks/data/join_group_by.py [--left 5000000] [--right 500000] [--repeats 11]

Runs alternate. Prints the best wall time of each, the median of the ratios within a round, and the CPU time of all
threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa

from trek.data import Table


def with_trek(left: pa.Table, right: pa.Table) -> float:
    """Sum of the result, for comparison."""
    joined = Table.of(left, num_partitions=2).join(Table.of(right), on="key")
    return float(
        joined.reduce({"total": ("value", "sum"), "mean": ("value", "mean")}, by="group").to_numpy()["total"].sum()
    )


def with_arrow(left: pa.Table, right: pa.Table) -> float:
    """Arrow's own join and group-by."""
    grouped = left.join(right, "key", join_type="inner").group_by("group")
    return float(grouped.aggregate([("value", "sum"), ("value", "mean")])["value_sum"].to_numpy().sum())


def with_polars(left: pa.Table, right: pa.Table) -> float:
    """Polars, lazily, as its documentation advises."""
    import polars as pl

    joined = pl.from_arrow(left).lazy().join(pl.from_arrow(right).lazy(), on="key")
    mean = pl.col("value").mean().alias("mean")
    return float(joined.group_by("group").agg(pl.col("value").sum(), mean).collect()["value"].sum())


def main() -> None:
    """Run all, print seconds and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--left", type=int, default=5_000_000)
    parser.add_argument("--right", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    left = pa.table({"key": rng.integers(0, options.right, options.left), "value": rng.random(options.left)})
    right = pa.table({"key": rng.permutation(options.right), "group": rng.integers(0, 1000, options.right)})
    runs: dict[str, Callable[[pa.Table, pa.Table], float]] = {"trek": with_trek, "arrow": with_arrow}
    if importlib.util.find_spec("polars"):
        runs["polars"] = with_polars
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    totals = set()
    for _ in range(options.repeats):
        for name, run in runs.items():
            began = time.perf_counter(), time.process_time()
            totals.add(round(run(left, right), 3))
            times[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    assert len(totals) == 1, f"contenders disagree: {totals}"
    report(times)


def report(times: dict[str, list[tuple[float, float]]]) -> None:
    """Print the table: wall and CPU seconds, and the ratio of Trek's time to each."""
    print(f"{'':<8}{'wall s':>8}{'CPU s':>8}   trek / peer: best, median, CPU")
    ours = times["trek"]
    for name, theirs in sorted(times.items(), key=lambda item: min(item[1])):
        wall, cpu = min(t[0] for t in theirs), min(t[1] for t in theirs)
        middle = median(mine[0] / other[0] for mine, other in zip(ours, theirs, strict=True))
        ratios = min(t[0] for t in ours) / wall, middle, min(t[1] for t in ours) / cpu
        print(f"{name:<8}{wall:>8.3f}{cpu:>8.3f}   {ratios[0]:.2f}, {ratios[1]:.2f}, {ratios[2]:.2f}")


if __name__ == "__main__":
    main()
