"""An elastic job over two hosts of a hostfile: this machine, and itself under another name and address."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import trek
from trek.testing.elastic_training import check_ledgers, train_with_ledger

SCRIPT = """
import json, sys
import trek
from trek.testing.elastic_training import Fault, train_with_ledger
faults = [Fault("kill", "batch", 1, 5), Fault("kill", "batch", 3, 9)]
with trek.Traveler(elastic=sys.argv[1]) as tr:
    result = train_with_ledger(tr, sys.argv[2], faults, 2, 0.05)
    if tr.world.is_leader:
        print(json.dumps(result["weights"]), flush=True)
"""
SSH = """#!/bin/sh
while [ "$1" != "${1#-}" ]; do shift 2; done
shift
exec unshare --uts sh -c "hostname far-away; $*"
"""


def _own_address() -> str:
    addresses = [one for interface in psutil.net_if_addrs().values() for one in interface]
    found = [one.address for one in addresses if one.family == socket.AF_INET and not one.address.startswith("127.")]
    if not found:
        pytest.skip("this machine has no address but loopback")
    return found[0]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A hostfile of two hosts with two slots each; TREK_SSH must be the file `ssh` beside it."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--uts", "true"], check=False).returncode:
        pytest.skip("giving a process another host name needs root")
    (tmp_path / "hosts").write_text(f"localhost slots=2\n{_own_address()} slots=2\n")
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path / "hosts"


def _train_over(hosts: Path, folder: Path, *, elastic: str) -> str:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "trek", "launch", "--hostfile", str(hosts), "--workers", "1:4"]
    done = subprocess.run(
        [*command, "train.py", elastic, str(folder)],
        cwd=folder,
        env={**os.environ, "TREK_SSH": str(hosts.parent / "ssh")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was lost") == 2, done.stderr
    return done.stdout.splitlines()[-1].partition("] ")[2]


def test_every_record_is_trained_once_when_workers_of_two_hosts_die(hosts: Path, tmp_path: Path) -> None:
    _train_over(hosts, tmp_path, elastic="fast")
    check_ledgers(tmp_path, epochs=2)


@pytest.mark.campaign
def test_the_weights_of_two_hosts_are_those_of_one_machine(hosts: Path, tmp_path: Path) -> None:
    weights = json.loads(_train_over(hosts, tmp_path, elastic="exact"))
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    expected = trek.run(train_with_ledger, str(undisturbed), workers=(1, 4), elastic="exact", show_progress=False)
    assert weights == expected["weights"]
