"""`trek up`: a master in the foreground that other commands reach by its address."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

from trek.testing.shell import Shell, wait_until


def test_people_log_in_to_a_master_that_others_can_reach(shell: Shell, tmp_path: Path) -> None:
    refused = shell.run("up", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "needs users" in refused.stderr
    for name, role in (("ann", "admin"), ("vic", "viewer")):
        assert shell.run("user", "create", name, "--role", role, "--password", "correct horse").returncode == 0
    master = shell.start("up", "--host", "0.0.0.0", "--port", "0")
    assert master.stdout is not None
    url = master.stdout.readline().split(" at ")[1].split()[0]
    other = Shell(tmp_path / "other-home", tmp_path, shell.model)
    try:
        assert other.run("-m", url, "experiment", "list").returncode == 2
        assert (
            "invalid user name or password"
            in other.run("-m", url, "user", "login", "vic", "--password", "incorrect").stderr
        )
        assert other.run("-m", url, "user", "login", "vic", "--password", "correct horse").returncode == 0
        assert other.json("-m", url, "user", "whoami")["role"] == "viewer"
        assert other.json("-m", url, "experiment", "list") == []
        denied = other.run("-m", url, "experiment", "create", other.config(), str(other.model))
        assert denied.returncode == 2
        assert "requires the role 'editor'" in denied.stderr
        assert shell.json("experiment", "list") == [], "the owner of the home needs no login"
        assert shell.json("-m", url, "experiment", "list") == [], "nor with the master's address"
        second = shell.run("up", "--port", "0")
        assert "already running" in second.stderr
    finally:
        master.send_signal(signal.SIGINT)
        master.communicate(timeout=240)
    assert master.returncode == 0


def test_a_port_in_use_is_named(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = shell.run("up", "--port", str(port))
    assert done.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr


def test_a_master_that_is_not_there_is_named(shell: Shell) -> None:
    done = shell.run("-m", "http://127.0.0.1:9", "experiment", "list")
    assert done.returncode == 3
    assert "http://127.0.0.1:9" in done.stderr


def test_a_master_takes_over_from_the_control_plane_in_the_background(shell: Shell) -> None:
    created = json.loads(shell.create("--no-follow", "--json", hyperparameters__sleep_s=0.05).stdout)
    wait_until(lambda: shell.experiment(created["id"])["trials"][0]["state"] == "running")
    background = shell.control_plane()
    up = shell.start("up", "--port", "0")
    try:
        assert up.stdout is not None
        assert "Trek master" in up.stdout.readline()
        wait_until(lambda: not background.is_running())
        assert "already running" in shell.run("up", "--port", "0").stderr, "one that a person started is left alone"
        wait_until(lambda: shell.experiment(created["id"])["state"] == "completed")
        assert shell.experiment(created["id"])["trials"][0]["restarts"] == 0
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=240)
