"""Trials on parameter servers: their workers and servers are killed, under one control plane and under the next."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from trek.testing.shell import Shell, wait_until

MODEL = Path(__file__).parent / "model"
SERVED = {"training__strategy": "ps", "resources__servers": 1, "hyperparameters__sleep_s": 0.2}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Shell]:
    """A home whose control plane has 2 slots."""
    made = Shell(tmp_path / "home", tmp_path, MODEL, variables={"TREK_SLOTS": "2"})
    yield made
    made.clean_up()


def _pids(cluster: Shell, role: str) -> list[int]:
    """Of the members of trials, not of their agents."""
    found = []
    for process in cluster.processes():
        with suppress(psutil.Error):  # it has just ended
            environ = process.environ()
            if environ.get("TREK_ROLE") == role and "TREK_MEMBER_DIR" in environ:
                found.append(process.pid)
    return found


def _kill(cluster: Shell, role: str, *, count: int) -> None:
    """Kill one of the members of a role, and wait for the one that takes its place."""
    wait_until(lambda: len(_pids(cluster, role)) == count)
    victim = _pids(cluster, role)[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(_pids(cluster, role)) == count and victim not in _pids(cluster, role))


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param(2, id="fixed", marks=pytest.mark.campaign),
        pytest.param({"min": 1, "max": 2}, id="range"),
        pytest.param(1, id="one", marks=pytest.mark.campaign),
    ],
)
def test_a_trial_goes_on_when_its_workers_and_servers_are_killed(cluster: Shell, slots: Any) -> None:
    done = cluster.create("--no-follow", "--json", **SERVED, resources__slots_per_trial=slots)
    assert done.returncode == 0, done.stderr
    number = str(json.loads(done.stdout)["id"])
    if slots != 1:
        _kill(cluster, "worker", count=2)
    _kill(cluster, "server", count=1)
    cluster.control_plane().kill()
    assert cluster.run("trial", "describe", number).returncode == 0, "by the next control plane"
    _kill(cluster, "server", count=1)
    wait_until(lambda: cluster.experiment(number)["state"] == "completed")
    described = cluster.json("trial", "describe", number)
    assert (described["run"], described["restarts"]) == (1, 0), cluster.run("trial", "logs", number).stdout
