"""A process that was forked after Polars had been used does relational work like any other, and never hangs."""

from __future__ import annotations

import subprocess
import sys

_FORKED = """
import os
import numpy as np
from trek import col
from trek.data import Table

table = Table.of({"k": np.arange(1000) % 7, "x": np.arange(1000.0)}, num_partitions=2)
WORK = {
    "reduce": lambda: table.reduce({"x": "sum"}, by="k").to_numpy()["x"].tolist(),
    "sort": lambda: table.sort("x", descending=True).head(3).to_numpy()["x"].tolist(),
    "filter": lambda: table.filter(col("x") < 3).to_numpy()["x"].tolist(),
    "count": lambda: table.filter(col("x") < 3).num_rows,
    "behind a function": lambda: table.map(lambda b: {"y": b["x"] * 2}).filter(col("y") < 5).to_numpy()["y"].tolist(),
    "computed": lambda: table.map(lambda b: b).with_columns(z=col("x") + 1).head(2).to_numpy()["z"].tolist(),
    "join": lambda: sum(len(k) for (k,) in table.join(table.distinct("k"), on="k").batches(100, columns=["k"])),
    "function by key": lambda: table.reduce(lambda r: {"n": [len(r["x"])]}, by="k").to_numpy()["n"].tolist(),
    "windows": lambda: table.window(250).reduce({"x": "sum"}).to_numpy()["x"].tolist(),
}
expected = {name: work() for name, work in WORK.items()}
child = os.fork()
if child == 0:
    found = {name: work() for name, work in WORK.items()}
    os._exit(0 if found == expected else 1)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

_LOADER_WORKERS = """
import numpy as np, torch
from trek.data import Table

class Rows(torch.utils.data.Dataset):
    def __init__(self):
        left = Table.of({"k": np.arange(60) % 5, "x": np.arange(60)})
        self.table = left.join(Table.of({"k": np.arange(5), "y": np.arange(5) * 10}), on="k")
        self.length = len(self.table)
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        row = self.table.sort("x").to_numpy()
        return int(row["x"][index]), int(row["y"][index])

loader = torch.utils.data.DataLoader(Rows(), batch_size=30, num_workers=2, multiprocessing_context="fork")
rows = [pair for xs, ys in loader for pair in zip(xs.tolist(), ys.tolist())]
assert rows == [(x, x % 5 * 10) for x in range(60)], rows
print("all rows")
"""


def run_script(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_process_forked_after_use_computes_the_same() -> None:
    """A forked child waited for ever for threads of Polars that a fork does not copy."""
    assert run_script(_FORKED) == ["child 0"]


def test_forked_loader_workers_read_a_join() -> None:
    """torch's loader workers are forked after the parent has counted the rows of a join with Polars."""
    assert run_script(_LOADER_WORKERS) == ["all rows"]
