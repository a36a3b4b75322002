"""Tables larger than memory: iterated in a process that really may not have more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import resource, sys
import numpy as np, torch, trek

folder, limit = sys.argv[1], int(sys.argv[2])
BATCH, ROWS = 8192, int(sys.argv[3])

def make(context):
    for start in range(0, ROWS, BATCH):
        yield {"image": np.full((min(BATCH, ROWS - start), 784), start % 251, np.uint8)}

def data_bytes():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))

small = trek.data.Table.of({"image": np.zeros((20000, 784), np.uint8)}, num_partitions=2).persist(folder + "/small")
for (images,) in small.batches(128, prefetch=2):
    pass
held = data_bytes()
resource.setrlimit(resource.RLIMIT_DATA, (held + limit, held + limit))
table = trek.data.Table.generate(make).persist(folder + "/large")
total = rows = 0
for (images,) in table.batches(128):
    rows += len(images)
    total += int(images[:, 0].sum())
print(rows, total)
try:
    table.to_torch()
except MemoryError:
    print("the limit is real")
"""


def test_a_table_ten_times_larger_than_memory_is_written_and_iterated(tmp_path: Path) -> None:
    limit, num_rows = 64 << 20, 10 * (64 << 20) // 784
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), str(limit), str(num_rows)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = sum((start % 251) * min(8192, num_rows - start) for start in range(0, num_rows, 8192))
    assert done.stdout.splitlines() == [f"{num_rows} {expected}", "the limit is real"]
