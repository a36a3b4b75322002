"""Twister2's scripts on two workers, on a slice of MNIST: by disk, in memory, and by the job submitter."""

from __future__ import annotations

import gzip
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from trek.compat.migration import migrate
from trek.compat.pytorch_quik.ddp import find_free_port

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compat" / "twister2"
SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"
INTEGRATION, FLOW = SEEDS / "twister2-pytorch-integration.md", SEEDS / "twister2flow.md"
SCRIPTS = {
    "MnistDownload.py": (INTEGRATION, "mnist_train = MNIST("),
    "Twister2PytorchMnist.py": (INTEGRATION, "UtilPanda"),
    "PytorchMnistDist.py": (INTEGRATION, "class Net"),
    "Twister2FlowWithMemory.py": (FLOW, "class Net"),
}
"""The document that a script is in, and a part of it that no other block has."""
PLACES = {"/tmp/twister2deepnetv1/": "data/", "/tmp/twister2deepnet/": "data/", "/tmp/parquet/": "parquet/"}
OTHERS = {
    "import torch.distributed as dist": "import trek.compat.twister2deepnet.deepnet.torch.distributed as dist",
    "from mpi4py import MPI": "from trek.compat.mpi4py import MPI",
}
"""Import lines of other projects that a user changes too."""
ROWS = {"train": ("train", 2000), "test": ("t10k", 200)}
pytestmark = [
    pytest.mark.skipif(not FLOW.is_file(), reason="needs Twister2's documents in ../shared"),
    pytest.mark.campaign,  # the first worker makes folders that the other may need before
]


def script(name: str) -> str:
    """A script as its document has it, with changed import lines and folders, for two workers instead of four."""
    document, part = SCRIPTS[name]
    blocks = re.findall(r"```\s*python3?\n(.*?)```", document.read_text(), flags=re.DOTALL)
    text = next(one for one in blocks if part in one)
    for old, new in {**PLACES, **OTHERS, "PARALLELISM = 4": "PARALLELISM = 2"}.items():
        text = text.replace(old, new)
    return migrate(text).text


@pytest.fixture
def folder(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scripts, and the data that they downloaded, cut to a slice."""
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))
    monkeypatch.setenv("MASTER_PORT", str(find_free_port()))  # with a hostfile, jobs meet at one port
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in SCRIPTS:
        (tmp_path / name).write_text(script(name))
    run(tmp_path, "MnistDownload.py")
    for split, (prefix, rows) in ROWS.items():
        for name, dimensions in (("images-idx3", 3), ("labels-idx1", 1)):
            cut(tmp_path / "data" / "mnist" / split / f"{prefix}-{name}-ubyte.gz", dimensions, rows=rows)
    return tmp_path


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
    output = run(folder, "-m", submitter, *words)
    assert accuracy(output) > 30
    assert (folder / "stats.csv").read_text().startswith("2,")


def test_the_program_in_memory_trains_on_workers_that_it_starts_itself(folder: Path) -> None:
    assert accuracy(run(folder, "Twister2FlowWithMemory.py")) > 30


def test_the_example_of_a_pipeline_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for path in EXAMPLE.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    run(tmp_path, "pipeline.py")
    log = next(Path(os.environ["TREK_HOME"]).glob("flows/digits/runs/*/logs/train.log")).read_text()
    assert float(log.rsplit("accuracy: ", 1)[1].split()[0]) > 0.9
