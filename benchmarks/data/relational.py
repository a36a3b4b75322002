"""Relational work on files: Trek compared with Polars itself, each case in a fresh process, time and peak memory.

    python benchmarks/data/relational.py [--rows 20000000] [--keys 38000000] [--limit 300] [--repeats 3] [--only CASE]

Runs alternate. Both deliver the same rows: scan, sort, group and join end with one Arrow table (`to_arrow()`;
`collect().to_arrow()`), the others read all batches as Arrow and keep none (iteration; `collect_batches()`). Polars is
asked for the order that Trek promises (`maintain_order`, a sort by key). A scan of a few rows comes first, so that the
time of imports is not counted, though their memory is. "many keys" groups 38 million rows by 19 million keys; with a
limit, Trek's executor has it and Polars the same budget (`POLARS_OOC_MEMORY_BUDGET_MB`). The CPU time of all threads is
given too, because other load on the machine changes it less. The goal is a ratio of at most 1.15 in time and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

CASES = ["scan", "sort", "group", "join", "many keys", "many keys, limited", "sort, limited"]


def make_files(folder: Path, *, rows: int, keys: int) -> None:
    """The files that all cases read."""
    import numpy as np
    import polars as pl

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    numbers = {"id": np.arange(rows), "k": rng.integers(0, 100_000, rows), "x": rng.random(rows)}
    numbers |= {"y": rng.random(rows).astype(np.float32), "z": rng.integers(0, 1000, rows).astype(np.int32)}
    pl.DataFrame(numbers).write_parquet(folder / "rows.parquet", row_group_size=1_000_000)
    many = {"k": rng.integers(0, keys // 2, keys), "x": rng.random(keys)}
    pl.DataFrame(many).write_parquet(folder / "many.parquet", row_group_size=500_000)
    for name, count in (("left", rows // 10), ("right", rows // 40)):
        ids = rng.integers(0, rows // 40, count) if name == "left" else rng.permutation(count)
        text = pl.col("k").cast(pl.String)
        columns = [
            pl.concat_str(pl.lit(f"{name} text "), text, pl.lit(f" column {n}")).alias(f"{name}{n}") for n in range(6)
        ]
        pl.DataFrame({"k": ids}).with_columns(columns).write_parquet(folder / f"{name}.parquet")


def with_trek(case: str, folder: Path, limit_mb: int) -> int:
    """Rows of the result."""
    import trek
    from trek import col
    from trek.data import ThreadExecutor, running_on

    rows = trek.data.open(folder / "rows.parquet")
    if case == "scan":
        return int(rows.filter(col("x") < 0.5).with_columns(w=col("x") * col("z")).to_arrow().num_rows)
    if case == "sort":
        return int(rows.sort("x").to_arrow().num_rows)
    if case == "group":
        asked = {"x": "sum", "y": "mean", "n": ("*", "count")}
        return int(rows.reduce(asked, by="k").to_arrow().num_rows)
    if case == "join":
        right = trek.data.open(folder / "right.parquet")
        return int(trek.data.open(folder / "left.parquet").join(right, on="k").to_arrow().num_rows)
    limit = limit_mb * 1_000_000 if case.endswith("limited") else None
    with running_on(ThreadExecutor(memory_limit_bytes=limit)):
        table = rows.sort("x")
        if case.startswith("many"):
            table = trek.data.open(folder / "many.parquet").reduce({"x": "sum"}, by="k")
        return sum(batch.num_rows for batch in table)


def with_polars(case: str, folder: Path, limit_mb: int) -> int:
    """Rows of the result."""
    import polars as pl

    rows = pl.scan_parquet(folder / "rows.parquet")
    ordered = rows.sort("x", maintain_order=True, nulls_last=True)
    asked = [pl.col("x").sum(), pl.col("y").mean(), pl.len()]
    texts = [pl.scan_parquet(folder / f"{name}.parquet") for name in ("left", "right")]
    many = pl.scan_parquet(folder / "many.parquet").group_by("k").agg(pl.col("x").sum()).sort("k")
    query = {
        "scan": rows.filter(pl.col("x") < 0.5).with_columns(w=pl.col("x") * pl.col("z")),
        "sort": ordered,
        "group": rows.group_by("k").agg(asked).sort("k"),
        "join": texts[0].join(texts[1], on="k", maintain_order="left_right"),
        "many keys": many,
        "many keys, limited": many,
        "sort, limited": ordered,
    }[case]
    if "," in case or case == "many keys":
        return sum(batch.to_arrow().num_rows for batch in query.collect_batches(engine="streaming"))
    return int(query.collect(engine="streaming").to_arrow().num_rows)


RUNS: dict[str, Callable[[str, Path, int], int]] = {"trek": with_trek, "polars": with_polars}


def run_here(name: str, case: str, folder: Path, limit_mb: int) -> None:
    """One run in this process; prints seconds, CPU seconds, the peak of memory in MB, and the rows."""
    RUNS[name]("scan", folder / "few", limit_mb)
    began, cpu_began = time.perf_counter(), time.process_time()
    rows = RUNS[name](case, folder, limit_mb)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps([seconds, cpu_seconds, peak, rows]))


def run_fresh(name: str, case: str, folder: Path, limit_mb: int) -> Any:
    """One run in a fresh process."""
    command = [sys.executable, __file__, "--run", name, case, str(folder), "--limit", str(limit_mb)]
    budget = {"POLARS_OOC_MEMORY_BUDGET_MB": str(limit_mb)} if name == "polars" and "limited" in case else {}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **budget})
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Run all cases, print seconds, memory and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=38_000_000)
    parser.add_argument("--limit", type=int, default=300, help="MB, for the limited cases")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=CASES, help="one case alone")
    parser.add_argument("--run", nargs=3, metavar=("NAME", "CASE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_here(options.run[0], options.run[1], Path(options.run[2]), options.limit)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), rows=options.rows, keys=options.keys)
        make_files(Path(folder) / "few", rows=1000, keys=1000)
        measures = [f"{f'trek {unit}':>11}{f'polars {unit}':>13}{'ratio':>7}" for unit in ("s", "CPU s", "MB")]
        print(f"{'':<20}{''.join(measures)}")
        for case in [options.only] if options.only else CASES:
            compare(case, Path(folder), options)


def compare(case: str, folder: Path, options: argparse.Namespace) -> None:
    """Run one case of both, alternating; print medians and their ratios."""
    found: dict[str, list[Any]] = {"trek": [], "polars": []}
    for _ in range(options.repeats):
        for name, runs in found.items():
            runs.append(run_fresh(name, case, folder, options.limit))
    assert len({run[3] for runs in found.values() for run in runs}) == 1, f"{case}: contenders disagree: {found}"
    ours, theirs = ([median(run[n] for run in runs) for n in (0, 1, 2)] for runs in found.values())
    measures = [f"{mine:>11.5g}{other:>13.5g}{mine / other:>7.2f}" for mine, other in zip(ours, theirs, strict=True)]
    print(f"{case:<20}{''.join(measures)}", flush=True)


if __name__ == "__main__":
    main()
