"""Runs of flows at a master: seen from anywhere while they go on and after, and in no need of it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trek.client.client import Address, Client
from trek.client.embedded import read_address
from trek.testing.shell import Shell, wait_until

FLOW = """
import os, time
import trek

flow = trek.Flow("example")
lr = flow.param("lr", 0.1)

def begin(folder):
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)
    return 1

def check(value):
    raise ValueError("not good yet")

checked = flow.step(check, flow.step(begin, FOLDER))
flow.command("show", ["echo", lr], after=[checked])
"""


@dataclass
class Master:
    """A running `trek up`, with its address."""

    process: subprocess.Popen[str]
    address: Address


@pytest.fixture
def master(shell: Shell) -> Iterator[Master]:
    process = shell.start("up", "--port", "0")
    assert process.stdout is not None
    assert "Trek master" in process.stdout.readline()
    address = read_address(shell.home / "control.json")
    assert address is not None
    yield Master(process, address)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    (shell.home / "control.json").unlink(missing_ok=True)


@pytest.fixture
def away(shell: Shell, master: Master, tmp_path: Path) -> Shell:
    """A home elsewhere, whose commands know the master's token."""
    (tmp_path / "flow.py").write_text(FLOW.replace("FOLDER", repr(str(tmp_path))))
    return Shell(tmp_path / "away", tmp_path, shell.model, {"TREK_TOKEN": master.address.token})


def test_a_failed_run_is_seen_at_the_master_with_its_steps_and_error(master: Master, away: Shell) -> None:
    url = master.address.url
    with Client(master.address) as client:
        running = away.start("-m", url, "flow", "run", "flow.py", "--param", "lr=0.5")
        wait_until(lambda: any(one.num_steps.get("running") for one in client.flow_runs()))
        assert client.flow_runs("example")[0].state == "running"
        (away.folder / "go").touch()
        assert running.wait(timeout=240) == 1
        running.communicate()
        (listed,) = away.json("-m", url, "flow", "list")
        assert (listed["name"], listed["num_runs"]) == ("example", 1)
        last = listed["last_run"]
        assert (last["state"], last["error"]) == ("failed", "ValueError: not good yet")
        assert last["num_steps"] == {"done": 1, "failed": 1, "blocked": 1}
        found = client.flow_run("example", last["id"])
    assert {step.name: step.state for step in found.steps} == {"begin": "done", "check": "failed", "show": "blocked"}
    assert found.params == {"lr": 0.5}
    assert found.owner
    assert {node.name: node.after for node in found.graph}["show"] == ["check"]
    assert [one["last_run"]["id"] for one in away.json("flow", "list")] == [last["id"]], "the home itself knows it"
    assert [one["id"] for one in away.json("-m", url, "flow", "list", "example")] == [last["id"]]
    assert away.run("flow", "list", "other").returncode == 2
    _see_from_a_third_place(Shell(away.folder / "third", away.folder, away.model, away.variables), url, last["id"])
    assert away.run("-m", url, "flow", "logs", "example", "check").returncode == 0, "it lies in this home"


def _see_from_a_third_place(third: Shell, url: str, run: str) -> None:
    """Commands with -m read the master's record; a home without the flow says so."""
    assert third.run("flow", "status", "example").returncode == 2
    told = third.json("-m", url, "flow", "status", "example")
    assert (told["id"], told["state"]) == (run, "failed")
    assert {step["name"]: step["state"] for step in told["steps"]}["check"] == "failed"
    assert [one["id"] for one in third.json("-m", url, "flow", "status")] == [run]
    nodes = {node["name"]: node for node in third.json("-m", url, "flow", "graph", "example", run)}
    assert (nodes["show"]["after"], nodes["begin"]["state"]) == (["check"], "done")
    for arguments, words in (
        (("status", "nothing"), "has no record of a flow 'nothing'. It has: example"),
        (("graph", "example", "no-run"), "has no run 'no-run'"),
        (("logs", "example", "check"), "are on the machine that ran it"),
    ):
        refused = third.run("-m", url, "flow", *arguments)
        assert refused.returncode == 2
        assert words in refused.stderr


def test_a_run_goes_on_when_its_master_is_killed(master: Master, away: Shell) -> None:
    (away.folder / "flow.py").write_text((away.folder / "flow.py").read_text().replace("raise ValueError", "print"))
    running = away.start("-m", master.address.url, "flow", "run", "flow.py")
    with Client(master.address) as client:
        wait_until(lambda: bool(client.flow_runs()))
    master.process.kill()
    master.process.wait(timeout=240)
    (away.folder / "go").touch()
    _, errors = running.communicate(timeout=240)
    assert running.returncode == 0, errors
    assert errors.count("trek: warning:") == 1
    assert [one["last_run"]["state"] for one in away.json("flow", "list")] == ["done"]


def test_a_master_that_was_never_there_costs_one_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("name: little\nsteps:\n  greet:\n    command: [echo, hello]\n")
    done = shell.run("-m", "http://127.0.0.1:9", "flow", "run", "flow.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trek: warning: this run is not recorded") == 1


def test_a_little_flow_starts_no_control_plane_and_is_in_the_list_of_the_next(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("name: little\nsteps:\n  greet:\n    command: [echo, hello]\n")
    assert shell.json("flow", "list") == []
    assert shell.run("flow", "run", "flow.yaml").returncode == 0
    assert not (shell.home / "control.json").exists()
    assert shell.run("experiment", "list").returncode == 0
    address = read_address(shell.home / "control.json")
    assert address is not None
    with Client(address) as client:
        assert [(one.name, one.last_run.state) for one in client.flows()] == [("little", "done")]
