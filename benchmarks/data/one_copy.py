"""Memory that each of N processes adds when all of them train on one shuffled table.

    python benchmarks/data/one_copy.py [--megabytes 512] [--processes 4]

Measured with the table in shared memory, and in Parquet files, which the first process decodes for all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

from trek.data import Table

_RANK = """
import re, sys, torch, trek
from trek.world import World

def anonymous_bytes():  # memory not backed by a file
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

trek.data.open(sys.argv[1]).schema
before = anonymous_bytes()
rank, size = int(sys.argv[2]), int(sys.argv[3])
world = World(rank=rank, size=size, local_rank=rank, local_size=size)
batches = trek.data.open(sys.argv[1]).batches(1024, shuffle=True, world=world)
total = sum(int(x.sum(dtype=torch.int64)) for (x,) in batches)
print(total, anonymous_bytes() - before)
"""


def measure(title: str, address: str, *, rows: int, processes: int) -> None:
    """Start the ranks, and print the memory that they add."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, address, str(rank), str(processes)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(processes)
    ]
    answers = [[int(word) for word in rank.communicate()[0].split()] for rank in ranks]
    assert sum(total for total, _ in answers) == rows * 1024, "rows were lost or read twice"
    total_bytes = sum(added for _, added in answers)
    max_bytes = max(added for _, added in answers)
    print(
        f"{title}: table of {rows / 1e3:.0f} MB; {processes} ranks add {total_bytes / 1e6:.0f} MB, "
        f"at most {max_bytes / 1e6:.0f} MB each"
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    rows = options.megabytes * 1024
    table = Table.of({"x": np.ones((rows, 1024), np.uint8)}, num_partitions=options.processes)
    with table.share() as handle:
        measure("shared memory", str(handle), rows=rows, processes=options.processes)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TREK_HOME"] = folder
        table.persist(f"{folder}/table")
        measure("Parquet", f"{folder}/table", rows=rows, processes=options.processes)


if __name__ == "__main__":
    main()
