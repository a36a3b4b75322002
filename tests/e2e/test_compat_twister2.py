"""Twister2's scripts as its documents have them, on a slice of MNIST: by disk, in memory, and by the job submitter.

Only import lines and folders are changed; and where there are two workers instead of four, their number.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from trek.compat.migration import migrate
from trek.compat.pytorch_quik.ddp import find_free_port
from trek.world.environments import LAUNCHER_NAMES

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compat" / "twister2"
SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"
INTEGRATION, FLOW = SEEDS / "twister2-pytorch-integration.md", SEEDS / "twister2flow.md"
SCRIPTS = {
    "MnistDownload.py": (INTEGRATION, "mnist_train = MNIST("),
    "Twister2PytorchMnist.py": (INTEGRATION, "UtilPanda"),
    "PytorchMnistDist.py": (INTEGRATION, "class Net"),
    "Twister2Flow.py": (INTEGRATION, "PipelineGraph"),
    "Twister2FlowWithMemory.py": (FLOW, "class Net"),
    "Twister2FlowWithDisk.py": (FLOW, "PipelineGraph"),
}
"""The document that a script is in, and a part of it that no other block has."""
PLACES = {
    "DATA_FOLDER = '/tmp/twister2deepnetv1/mnist/'": "DATA_FOLDER = 'slice/'",
    "DATA_FOLDER = '/tmp/twister2deepnet/mnist/'": "DATA_FOLDER = 'slice/'",
    "/tmp/twister2deepnet/": "data/",
    "/tmp/parquet/": "parquet/",
}
ROWS = {"train": ("train", 1200), "test": ("t10k", 200)}
needs_seeds = pytest.mark.skipif(not FLOW.is_file(), reason="needs Twister2's documents in ../shared")
needs_mpi = pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="Open MPI is not installed")
MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n"]


def script(name: str) -> str:
    """A script as its document has it, with changed import lines and folders."""
    document, part = SCRIPTS[name]
    blocks = re.findall(r"```\s*python3?\n(.*?)```", document.read_text(), flags=re.DOTALL)
    text = next(one for one in blocks if part in one)
    for old, new in PLACES.items():
        text = text.replace(old, new)
    return migrate(text).text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts, and a slice of the data."""
    made = tmp_path_factory.mktemp("twister2")
    for name in SCRIPTS:
        (made / name).write_text(script(name))
    data = SEEDS.parent / "data" / "mnist"
    for split, (prefix, rows) in ROWS.items():
        (made / "slice" / split).mkdir(parents=True)
        for name, dimensions in ((f"{prefix}-images-idx3-ubyte.gz", 3), (f"{prefix}-labels-idx1-ubyte.gz", 1)):
            (made / "slice" / split / name).write_bytes(cut(data / name, dimensions, rows=rows))
    return made


def cut(path: Path, dimensions: int, *, rows: int) -> bytes:
    """The first rows of an idx file."""
    raw = gzip.decompress(path.read_bytes())
    head = 4 + 4 * dimensions
    sizes = struct.unpack(f">{dimensions}I", raw[4:head])
    row_bytes = (len(raw) - head) // sizes[0]
    header = raw[:4] + struct.pack(f">{dimensions}I", rows, *sizes[1:])
    return gzip.compress(header + raw[head : head + rows * row_bytes], 1)


def run(folder: Path, *words: str) -> str:
    """What a command prints; it must succeed."""
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHER_NAMES}
    own = {
        "TREK_HOME": str(folder / "home"),
        "TREK_WARM_START": "0",
        "TREK_DATA_MIRROR": str(SEEDS.parent / "data"),
        "OMP_NUM_THREADS": "1",
        "MASTER_PORT": str(find_free_port()),  # with a hostfile, jobs meet at one port
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    done = subprocess.run(words, cwd=folder, env={**clean, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(output: str) -> float:
    """The mean over the workers, which the scripts print in brackets."""
    found = re.search(r"Accuracy: \d+/\d+ \((\d+)%\)", output)
    assert found, output
    return float(found[1])


@needs_seeds
def test_the_whole_graph_runs_by_disk(folder: Path) -> None:
    """The second task used to fail now and then: the first worker makes folders that the others need before."""
    output = run(folder, sys.executable, "Twister2Flow.py")
    assert "download_task -> t2_task -> pytorch_task" in output
    assert len(list((folder / "data" / "mnist").rglob("*.gz"))) == 4
    parts = [pq.read_table(folder / "parquet" / "train" / f"{rank}.data") for rank in range(4)]
    assert [part.num_rows for part in parts] == [300] * 4
    assert all(parts[0] != other for other in parts[1:])
    log = next((folder / "home" / "flows" / "UNNAMED_TASK" / "runs").glob("*/logs/pytorch_task.log")).read_text()
    assert accuracy(log) > 40
    assert (folder / "stats.csv").read_text().startswith("4,")


SUBMITTER = "trek.compat.twister2flow.bootstrap.PytorchJobSubmitter"
FOUR = ["--executor", "python3", "--parallelism", "4", "--hostfile", "hostfile"]


def test_the_job_submitter_starts_a_script_on_the_hosts_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("localhost slots=3\n127.0.0.1 slots=1\n")
    words = "os.environ['OMPI_COMM_WORLD_RANK'], os.environ['OMPI_COMM_WORLD_SIZE'], sys.argv[0]"
    (tmp_path / "place.py").write_text(f"import os, sys\nprint('I am', {words})\n")
    output = run(tmp_path, sys.executable, "-m", SUBMITTER, "--script", "place.py", *FOUR)
    assert sorted(re.findall("I am .*", output)) == [f"I am {rank} 4 place.py" for rank in range(4)]


@needs_seeds
@pytest.mark.campaign  # its parts are in the tests of the graph and of the submitter
def test_the_job_submitter_trains(folder: Path) -> None:
    run(folder, sys.executable, "Twister2PytorchMnist.py")
    (folder / "hostfile").write_text("localhost slots=4\n")
    assert accuracy(run(folder, sys.executable, "-m", SUBMITTER, "--script", "PytorchMnistDist.py", *FOUR)) > 40


@needs_seeds
@pytest.mark.parametrize(
    "launcher",
    [
        # Workers that start themselves are in the test of the graph, too.
        pytest.param([], marks=pytest.mark.campaign, id="itself"),
        pytest.param([*MPIRUN, "2"], marks=needs_mpi, id="mpirun"),
    ],
)
def test_the_program_in_memory_trains(folder: Path, launcher: list[str]) -> None:
    """Started alone, it starts its workers itself with `trek launch`."""
    two = folder / "two.py"
    two.write_text(script("Twister2FlowWithMemory.py").replace("PARALLELISM = 4", "PARALLELISM = 2"))
    assert accuracy(run(folder, *launcher, sys.executable, two.name)) > 40


@needs_seeds
@needs_mpi
def test_the_scripts_run_under_mpirun(folder: Path) -> None:
    """The number of workers is mpirun's, also where the rank is read from its variables."""
    for name in ("Twister2PytorchMnist.py", "PytorchMnistDist.py"):
        text = script(name).replace("PARALLELISM = 4", "PARALLELISM = 2").replace("parquet/", "by_mpi/")
        (folder / f"mpi_{name}").write_text(text)
        output = run(folder, *MPIRUN, "2", sys.executable, f"mpi_{name}")
    assert pq.read_table(folder / "by_mpi" / "train" / "1.data").num_rows == 600
    assert accuracy(output) > 40


@pytest.mark.campaign  # the graph of the documents, by other names
def test_the_example_of_a_pipeline_trains(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    for path in EXAMPLE.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    run(tmp_path, sys.executable, "pipeline.py")
    log = next((tmp_path / "home").glob("flows/digits/runs/*/logs/train.log")).read_text()
    assert float(log.rsplit("accuracy: ", 1)[1].split()[0]) > 0.9
