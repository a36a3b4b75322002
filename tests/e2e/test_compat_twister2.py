"""Twister2's scripts on two workers, on a slice of MNIST: by disk, in memory, and by the job submitter."""

from __future__ import annotations

import gzip
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compat" / "twister2"
ROWS = {"train": ("train", 2000), "test": ("t10k", 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    """The scripts, for two workers instead of four, and the data that they downloaded, cut to a slice."""
    made = tmp_path_factory.mktemp("twister2")
    for path in EXAMPLE.glob("*.py"):
        (made / path.name).write_text(path.read_text().replace("PARALLELISM = 4", "PARALLELISM = 2"))
    run(made, "MnistDownload.py", TREK_DATA_MIRROR=str(shared_data))
    for split, (prefix, rows) in ROWS.items():
        for name, dimensions in (("images-idx3", 3), ("labels-idx1", 1)):
            cut(made / "data" / "mnist" / split / f"{prefix}-{name}-ubyte.gz", dimensions, rows=rows)
    return made


def cut(path: Path, dimensions: int, *, rows: int) -> None:
    raw = gzip.decompress(path.read_bytes())
    head = 4 + 4 * dimensions
    sizes = struct.unpack(f">{dimensions}I", raw[4:head])
    row_bytes = (len(raw) - head) // sizes[0]
    header = raw[:4] + struct.pack(f">{dimensions}I", rows, *sizes[1:])
    path.write_bytes(gzip.compress(header + raw[head : head + rows * row_bytes], 1))


def run(folder: Path, *words: str, **variables: str) -> str:
    own = {"TREK_HOME": str(folder / "home"), "TREK_WARM_START": "0", "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def accuracy(output: str) -> float:
    """The mean over the workers, which the scripts print in brackets."""
    found = re.search(r"Accuracy: \d+/\d+ \((\d+)%\)", output)
    assert found, output
    return float(found[1])


def test_the_scripts_by_disk_train_on_different_rows(folder: Path) -> None:
    run(folder, "Twister2PytorchMnist.py")
    parts = [(folder / "parquet" / "train" / f"{rank}.data").read_bytes() for rank in range(2)]
    assert parts[0] != parts[1]
    (folder / "hostfile").write_text("localhost slots=2\n")
    submitter = "trek.compat.twister2flow.bootstrap.PytorchJobSubmitter"
    words = ["--script", "PytorchMnistDist.py", "--executor", "python3", "--parallelism", "2", "--hostfile", "hostfile"]
    # With a hostfile, processes meet at a fixed port, which another job on this machine may have.
    output = run(folder, "-m", submitter, *words, MASTER_PORT=str(free_port()))
    assert accuracy(output) > 30
    assert (folder / "stats.csv").read_text().startswith("2,")


def test_the_program_in_memory_trains_on_workers_that_it_starts_itself(folder: Path) -> None:
    assert accuracy(run(folder, "Twister2FlowWithMemory.py")) > 30
