"""A Slurm of one node with a munge of its own, for tests; skips where it is not installed or cannot run."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PROGRAMS = ("munged", "slurmctld", "slurmd")
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=4096 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def one_node_slurm() -> Iterator[str]:
    """A running Slurm; gives the path of its slurm.conf."""
    programs = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in _PROGRAMS}
    if missing := [name for name, found in programs.items() if found is None]:
        pytest.skip(f"{missing[0]} is not installed")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: a socket's path has room for 107 bytes
        folder = Path(name)
        folder.chmod(0o755)
        for sub in ("state", "spool"):
            (folder / sub).mkdir()
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        host, user = socket.gethostname().partition(".")[0], getpass.getuser()
        ports, cores = [_free_port(), _free_port()], os.cpu_count()
        conf = folder / "slurm.conf"
        conf.write_text(_CONF.format(host=host, folder=folder, user=user, ports=ports, cores=cores))
        files = {"socket": "munge.sock", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        munge = [f"--{option}={folder}/{file}" for option, file in files.items()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_daemon([str(programs["munged"]), "--force", "--foreground", *munge]))
            _await_true(lambda: (folder / "munge.sock").exists(), "munged does not start")
            for one in ("slurmctld", "slurmd"):
                stack.enter_context(_daemon([str(programs[one]), "-D", "-f", str(conf)]))
            _await_true(lambda: _is_idle(conf), "slurmd does not start")
            yield str(conf)


@contextlib.contextmanager
def _daemon(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=240)


def _is_idle(conf: Path) -> bool:
    env = {**os.environ, "SLURM_CONF": str(conf)}
    asked = subprocess.run(["sinfo", "-h", "-o", "%t"], env=env, capture_output=True, text=True, check=False)
    return asked.stdout.strip() in ("idle", "alloc", "mix")


def _await_true(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
