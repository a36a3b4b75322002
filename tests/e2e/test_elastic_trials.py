"""Elastic trials of experiments: workers are killed, added and taken away while a trial goes on, without a restart."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.client.models import TrialRecord, WorkerChange
from trek.testing.shell import Shell, wait_until

MODEL = Path(__file__).parent / "model"
EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic"
LONG = {"hyperparameters__sleep_s": 0.05, "searcher__max_steps": 1000}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Shell]:
    """A home whose control plane has 3 slots."""
    made = Shell(tmp_path / "home", tmp_path, MODEL, variables={"TREK_SLOTS": "3"})
    yield made
    made.clean_up()


def _create(cluster: Shell, **changes: Any) -> int:
    """Create an experiment with one elastic trial, and leave it running; the id of both."""
    elastic = {"resources__slots_per_trial": {"min": 1, "max": 3}, **changes}
    done = cluster.create("--no-follow", "--json", **elastic)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["id"])


def _trial(cluster: Shell, number: int) -> TrialRecord:
    address = running_address(cluster.home)
    assert address is not None
    with Client(address) as client:
        return client.trial(number)


def _changes(cluster: Shell, number: int) -> list[WorkerChange]:
    address = running_address(cluster.home)
    assert address is not None
    with Client(address) as client:
        return client.worker_changes(number)


def _has_workers(cluster: Shell, number: int, count: int) -> None:
    wait_until(lambda: _trial(cluster, number).num_workers == count)


def _worker_pids(cluster: Shell) -> list[int]:
    """Of the processes that train, not of their agents."""
    found = []
    for process in cluster.processes():
        environ = process.environ()
        if environ.get("TREK_ROLE") == "worker" and "TREK_MEMBER_DIR" in environ:
            found.append(process.pid)
    return found


def test_a_worker_is_killed_and_others_are_added_without_a_restart(cluster: Shell) -> None:
    number = _create(cluster, **LONG)
    _has_workers(cluster, number, 3)
    os.kill(_worker_pids(cluster)[0], signal.SIGKILL)
    wait_until(lambda: any("its connection ended" in one.text for one in _changes(cluster, number)))
    _has_workers(cluster, number, 3)
    refused = cluster.run("trial", "scale", str(number), "4")
    assert refused.returncode == 2
    assert "1 to 3" in refused.stderr or "the cluster has 3" in refused.stderr
    assert "without a restart" in cluster.run("trial", "scale", str(number), "1").stdout
    _has_workers(cluster, number, 1)
    wait_until(lambda: _trial(cluster, number).slots == 1)
    assert cluster.run("trial", "scale", str(number), "2").returncode == 0
    _has_workers(cluster, number, 2)
    described = cluster.json("trial", "describe", str(number))
    assert (described["run"], described["restarts"], described["slot_range"]) == (1, 0, {"min": 1, "max": 2})
    assert [one["run"] for one in described["worker_changes"]] == [1] * len(described["worker_changes"])
    assert "joins as rank" in cluster.run("trial", "logs", str(number)).stdout
    cluster.control_plane().kill()
    assert cluster.run("trial", "scale", str(number), "3").returncode == 0, "by the next control plane"
    _has_workers(cluster, number, 3)
    assert (_trial(cluster, number).run, _trial(cluster, number).restarts) == (1, 0)


def test_two_elastic_trials_share_the_slots(cluster: Shell) -> None:
    first = _create(cluster, **LONG)
    _has_workers(cluster, first, 3)
    second = _create(cluster, hyperparameters__sleep_s=0.05)
    wait_until(lambda: _trial(cluster, second).state == "completed")
    _has_workers(cluster, first, 3)
    both = [_trial(cluster, first), _trial(cluster, second)]
    assert [(one.run, one.restarts) for one in both] == [(1, 0), (1, 0)]
    sizes = [one.num_workers for one in _changes(cluster, first)]
    assert min(sizes[3:]) < 3, "it gave slots back"


def test_the_example_is_an_elastic_trial(cluster: Shell) -> None:
    entrypoint = "entrypoint=python train.py --epochs 2 --pause 0.01"
    done = cluster.run(
        "experiment", "create", str(EXAMPLE / "elastic.yaml"), str(EXAMPLE), "--json", "--config", entrypoint
    )
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    assert (trial["state"], trial["restarts"]) == ("completed", 0)
    assert trial["slot_range"] == {"min": 1, "max": 4}
    assert trial["best_metric"] > 0.9
    assert any(change.text.startswith("starts with") for change in _changes(cluster, trial["id"]))
