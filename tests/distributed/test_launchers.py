"""Other launchers, alone and inside of Trek: every process finds its place, and those of a job train together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trek.testing.slurm import one_node_slurm
from trek.world.environments import LAUNCHER_NAMES

MPI = {"Open MPI": "mpirun.openmpi", "MPICH": "mpiexec.hydra"}
SCRIPT = """
import sys, torch, trek
with trek.Traveler(show_progress=False) as tr:
    model = tr.add_model(torch.nn.Linear(1, 1, bias=False))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    rows = torch.arange(4.0).view(4, 1) * float(sys.argv[1])
    for _ in tr.epochs(1):
        for (x,) in tr.train(tr.add_loader(torch.utils.data.TensorDataset(rows), batch_size=2)):
            torch.nn.init.zeros_(model.weight)
            tr.backward(model(x).mean())
            tr.step(optimizer)
    print(f"rank {tr.world.rank} of {tr.world.size}: {model.weight.item():g}", flush=True)
"""
TOGETHER = ["rank 0 of 2: -1.5", "rank 1 of 2: -1.5"]
"""The mean of all rows, which no process has alone."""


def program(launcher: str, name: str) -> list[str]:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{launcher} is not installed")
    return [found, *(["--oversubscribe"] if launcher == "Open MPI" else []), "-n", "2", sys.executable]


def environment(tmp_path: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHER_NAMES}
    return {
        **clean,
        "TREK_HOME": str(tmp_path / "home"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }


def lines(text: str) -> list[str]:
    """What the ranks printed; MPICH may write two of them on one line."""
    return sorted(re.findall(r"rank \d of \d: -[\d.]+?(?=rank|\s|$)", text))


@pytest.fixture(scope="module")
def slurm() -> Iterator[str]:
    with one_node_slurm() as conf:
        yield conf


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run(command: list[str], env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def test_open_mpi_alone(script: Path, tmp_path: Path) -> None:
    """MPICH alone: see the test of two jobs."""
    command = [*program("Open MPI", MPI["Open MPI"]), str(script), "1"]
    done = run(command, environment(tmp_path), tmp_path)
    assert lines(done.stdout) == TOGETHER, done.stderr


@pytest.mark.parametrize("launcher", [*MPI, "torchrun"])
def test_a_launcher_in_a_step_of_a_flow(launcher: str, script: Path, tmp_path: Path) -> None:
    """Each rank used to read the step's own rank 0 of 1, and trained alone with exit code 0."""
    words = (
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        if launcher == "torchrun"
        else program(launcher, MPI[launcher])
    )
    flow = tmp_path / "flow.py"
    flow.write_text(f"import trek\nflow = trek.Flow('inner')\nflow.command('train', {[*words, str(script), '1']!r})\n")
    done = run([sys.executable, "-m", "trek", "flow", "run", str(flow)], environment(tmp_path), tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    log = run([sys.executable, "-m", "trek", "flow", "logs", "inner", "train"], environment(tmp_path), tmp_path)
    assert lines(log.stdout) == TOGETHER, log.stdout


def test_srun_alone(slurm: str, script: Path, tmp_path: Path) -> None:
    command = ["srun", "-n", "2", "-O", sys.executable, str(script), "1"]
    done = run(command, {**environment(tmp_path), "SLURM_CONF": slurm}, tmp_path)
    assert lines(done.stdout) == TOGETHER, done.stderr


def test_srun_as_the_launcher_of_a_step(slurm: str, script: Path, tmp_path: Path) -> None:
    """Slurm's tasks are the innermost processes: they read Slurm's ranks, and not the step's rank 0 of 1."""
    flow = tmp_path / "flow.py"
    flow.write_text(
        f"import trek\nflow = trek.Flow('slurm')\n"
        f"flow.script({str(script)!r}, '1', workers=2, launcher='srun', name='train')\n"
    )
    env = {**environment(tmp_path), "SLURM_CONF": slurm, "SLURM_OVERCOMMIT": "1"}
    done = run([sys.executable, "-m", "trek", "flow", "run", str(flow)], env, tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    log = run([sys.executable, "-m", "trek", "flow", "logs", "slurm", "train"], env, tmp_path)
    assert lines(log.stdout) == TOGETHER, log.stdout


def test_two_jobs_of_mpich_on_one_machine_do_not_mix(script: Path, tmp_path: Path) -> None:
    """Both used to meet at port 29500."""
    words = program("MPICH", MPI["MPICH"])
    jobs = [
        subprocess.Popen(
            [*words, str(script), factor], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for factor in ("1", "10")
    ]
    found = [lines(job.communicate(timeout=240)[0]) for job in jobs]
    assert found == [TOGETHER, ["rank 0 of 2: -15", "rank 1 of 2: -15"]]
