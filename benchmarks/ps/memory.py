"""The memory of a table of many rows, as the system counts it.

    python benchmarks/ps/memory.py [--rows 50000000]

Rows of 16 floats without an optimizer's state, pushed in random order of ids. The bound is 1.25 times the bytes of the
values and 16 bytes a row.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from trek.ps.rules import Rule
from trek.ps.table import Table
from trek.ps.table_spec import TableSpec

DIM, BATCH = 16, 250_000


def resident_bytes() -> int:
    """The memory of this process that is really there."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    """Fill a table, and print what it takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000_000)
    options = parser.parse_args()
    rule, gradients = Rule.named("SGD", lr=0.1), np.ones((BATCH, DIM), np.float32)
    step = 0x9E3779B97F4A7C15  # odd, so that its multiples modulo 2**64 are distinct: ids without any order
    table = Table(TableSpec(name="large", dim=DIM))
    table.push(np.zeros(1, np.int64), gradients[:1], rule=rule, version=1)
    before, begun = resident_bytes(), time.perf_counter()
    for start in range(1, options.rows, BATCH):
        count = min(BATCH, options.rows - start)
        ids = (np.arange(start, start + count, dtype=np.uint64) * np.uint64(step)).view(np.int64)
        table.push(ids, gradients[:count], rule=rule, version=2 + start // BATCH)
    took, used = time.perf_counter() - begun, resident_bytes() - before
    bound = len(table) * (1.25 * 4 * DIM + 16)
    print(f"{len(table)} rows in {took:.1f} s: {used / len(table):.1f} bytes a row, {used / bound:.2f} x the bound")


if __name__ == "__main__":
    main()
