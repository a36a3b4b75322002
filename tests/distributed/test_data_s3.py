"""Tables in S3: a real server on loopback, read from and persisted to by a process that only knows the URL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trek.testing.s3 import ACCOUNT, MISSING, s3

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

_PROGRAM = """
import io
import fsspec, numpy as np, pyarrow as pa, pyarrow.parquet as pq, trek
from trek.data import Table

rows = pa.table({"x": range(1000), "name": [str(n) for n in range(1000)]})
with fsspec.open("s3://bucket/files/a.parquet", "wb") as file:
    pq.write_table(rows, file)
with fsspec.open("s3://bucket/files/b.parquet", "wb") as file:
    pq.write_table(rows, file)
source = trek.data.open("s3://bucket/files")
assert (source.num_partitions, source.num_rows) == (2, 2000)
prepared = source.select("x").map(lambda batch: {"y": batch["x"] * 2}).persist("s3://bucket/prepared")
again = trek.data.open("s3://bucket/prepared")
assert sum(int(y.sum()) for (y,) in again.batches(64, shuffle=True)) == 2 * 2 * 499500
print(sorted(path.rpartition("-")[2] for path in fsspec.filesystem("s3").find("s3://bucket/prepared")))
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The URL of an S3 server with one empty bucket."""
    with s3("bucket") as url:
        yield url


def test_tables_are_read_from_s3_and_persisted_there(endpoint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **ACCOUNT, "AWS_ENDPOINT_URL": endpoint},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['00000.parquet', '00001.parquet', 'bucket/prepared/manifest.json']"
