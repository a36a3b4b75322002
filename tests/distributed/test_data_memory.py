"""Tables larger than memory: iterated in a process that really may not have more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Memory comes from the system as it is used and goes back as it is freed, so that the limit is on what is held: by
# default, Arrow takes far more than it uses, and the C library keeps freed pieces of a size it saw before.
_PLAIN_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_TRIM_THRESHOLD_": str(128 << 10),
    "MALLOC_ARENA_MAX": "1",
}
# How many threads libraries start depends on how busy the machine is, and the stack of each counts: 8 MB by default.
_SMALL_STACKS = ["/bin/sh", "-c", 'ulimit -s 1024; exec "$@"', "sh"]

_LIMITED = """
import resource, sys
import numpy as np, torch, trek

folder, limit, num_rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def data_bytes():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))

def limit_memory():
    allowed = data_bytes() + limit
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))

def show_that_the_limit_is_real():
    try:
        # More than the whole limit: what was held before it was set may have been freed since.
        np.ones(resource.getrlimit(resource.RLIMIT_DATA)[0] + 1, np.uint8)
    except MemoryError:
        print("the limit is real")
"""

_PERSISTED = """
BATCH = 8192

def make(context):
    for start in range(0, num_rows, BATCH):
        yield {"image": np.full((min(BATCH, num_rows - start), 784), start % 251, np.uint8)}

small = trek.data.Table.of({"image": np.zeros((20000, 784), np.uint8)}, num_partitions=2).persist(folder + "/small")
for (images,) in small.batches(128, prefetch=2):
    pass
limit_memory()
table = trek.data.Table.generate(make).persist(folder + "/large")
total = rows = 0
for (images,) in table.batches(128, shuffle=SHUFFLE):
    rows += len(images)
    total += int(images[:, 0].sum())
print(rows, total)
show_that_the_limit_is_real()
"""

_TEXT = """
for (numbers,) in trek.data.open(folder + "/small" + SUFFIX).batches(128, columns=["number"]):
    pass
limit_memory()
table = trek.data.open(folder + "/large" + SUFFIX)
total = rows = 0
for (numbers,) in table.batches(4096, columns=["number"]):
    rows += len(numbers)
    total += int(numbers.sum())
print(rows, total)
show_that_the_limit_is_real()
"""


def run_limited(program: str, folder: Path, *, limit: int, num_rows: int) -> list[str]:
    done = subprocess.run(
        [*_SMALL_STACKS, sys.executable, "-c", _LIMITED + program, str(folder), str(limit), str(num_rows)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **_PLAIN_MEMORY},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_table_ten_times_larger_than_memory_is_written_and_iterated(shuffle: bool, tmp_path: Path) -> None:
    limit = 64 << 20
    num_rows = 10 * limit // 784
    said = run_limited(f"SHUFFLE = {shuffle}\n{_PERSISTED}", tmp_path, limit=limit, num_rows=num_rows)
    expected = sum((start % 251) * min(8192, num_rows - start) for start in range(0, num_rows, 8192))
    assert said == [f"{num_rows} {expected}", "the limit is real"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_text_file_ten_times_larger_than_memory_is_iterated(suffix: str, tmp_path: Path) -> None:
    limit = 40 << 20
    line = _line(suffix)
    num_rows = 10 * limit // len(line)
    for name, count in (("small", 20_000), ("large", num_rows)):
        with (tmp_path / f"{name}{suffix}").open("wb") as file:
            file.write(_header() if suffix == ".csv" else b"")
            for start in range(0, count, 10_000):
                file.write(line * min(10_000, count - start))
    said = run_limited(f"SUFFIX = {suffix!r}\n{_TEXT}", tmp_path, limit=limit, num_rows=num_rows)
    assert said == [f"{num_rows} {7 * num_rows}", "the limit is real"]


def _header() -> bytes:
    return b"number," + b",".join(b"n%d" % column for column in range(20)) + b"\n"


def _line(suffix: str) -> bytes:
    if suffix == ".csv":
        return b"7," + b",".join(b"%d" % (column + 10) for column in range(20)) + b"\n"
    return b'{"number": 7, ' + b", ".join(b'"n%d": %d' % (column, column) for column in range(20)) + b"}\n"


_RELATIONAL = """
from trek.data import Table, ThreadExecutor, running_on

def make(context):
    rng = np.random.default_rng(0)
    for start in range(0, num_rows, 1 << 16):
        count = min(1 << 16, num_rows - start)
        yield {"k": rng.integers(0, 1 << 40, count), "id": np.arange(start, start + count), "pad": rng.random(count)}

def is_complete(batches):
    last, ids = -1, 0
    for batch in batches:
        keys = batch.column("k").to_numpy()
        assert keys[0] >= last and (np.diff(keys) >= 0).all()
        last = keys[-1]
        ids += int(batch.column("id").to_numpy().sum())
    return ids == num_rows * (num_rows - 1) // 2

Table.generate(make).persist(folder + "/rows", storage="parquet")
ordered = trek.data.open(folder + "/rows/*.parquet").sort("k")
with running_on(ThreadExecutor(memory_limit_bytes=limit)) as executor:
    print(is_complete(ordered), executor.num_spilled_bytes)
    print(is_complete(ordered.to_arrow().to_batches()), executor.num_spilled_bytes > 0)
"""


def test_a_sort_larger_than_the_executors_limit_is_complete_and_what_is_kept_of_it_spills(tmp_path: Path) -> None:
    """A sort was done in one place, in memory, whatever the limit; iterating one kept its rows."""
    said = run_limited(_RELATIONAL, tmp_path, limit=20 << 20, num_rows=1_500_000)
    assert said == ["True 0", "True True"]
