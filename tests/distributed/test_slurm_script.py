"""The script of `trek cluster render slurm` on a real Slurm of one node: sbatch accepts it, and it makes a cluster."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.clusters.base import ClusterSpec
from trek.clusters.slurm import SlurmRenderer
from trek.testing.slurm import one_node_slurm

pytestmark = pytest.mark.timeout(300)
PROGRAM = """
import os, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
print("token", os.environ["TOKEN"], "cpus", ray.cluster_resources()["CPU"], "it's here")
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[str]:
    with one_node_slurm() as conf:
        yield conf


def _sbatch(conf: str, spec: ClusterSpec, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = folder / "job.sh"
    script.write_text(SlurmRenderer().render(spec))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "SLURM_CONF": conf, "PATH": path}
    command = ["sbatch", f"--output={folder}/output", *options, str(script)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)


def test_sbatch_knows_what_the_script_asks_for(slurm: str, tmp_path: Path) -> None:
    small = ClusterSpec(name="search", cpus=1, memory_gb=1, time_limit="0:10:00", command=("true",))
    done = _sbatch(slurm, small, tmp_path, "--test-only")
    assert done.returncode == 0, done.stderr
    done = _sbatch(slurm, ClusterSpec(nodes=64, command=("true",)), tmp_path, "--test-only")
    assert done.returncode != 0


def test_a_job_has_a_cluster_and_its_secrets(slurm: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    (tmp_path / "my token").write_text("from a file\n")
    secrets = {"TOKEN": str(tmp_path / "my token")}
    spec = ClusterSpec(cpus=2, memory_gb=2, command=(sys.executable, "-c", PROGRAM), secrets=secrets)
    done = _sbatch(slurm, spec, tmp_path, "--parsable")
    assert done.returncode == 0, done.stderr
    while _is_queued(slurm, done.stdout.strip()):  # `sbatch --wait` looks twice a minute
        time.sleep(0.2)
    output = (tmp_path / "output").read_text()
    assert "token from a file cpus 2.0 it's here" in output


def _is_queued(conf: str, job: str) -> bool:
    command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]
    env = {**os.environ, "SLURM_CONF": conf}
    asked = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=True)
    return asked.stdout.strip() in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
