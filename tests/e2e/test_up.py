"""`trek up`: a master in the foreground that other commands reach by its address."""

from __future__ import annotations

import signal
import socket

from trek.testing.shell import Shell


def test_commands_with_a_master_speak_to_it(shell: Shell) -> None:
    shell.variables = {"TREK_TOKEN": "secret"}
    master = shell.start("up", "--port", "0")
    assert master.stdout is not None
    url = master.stdout.readline().split(" at ")[1].split()[0]
    try:
        assert shell.json("-m", url, "experiment", "list") == []
        shell.variables = {"TREK_TOKEN": "wrong"}
        refused = shell.run("-m", url, "experiment", "list")
        assert refused.returncode == 2
        assert "token" in refused.stderr
        shell.variables = {}
        assert shell.json("experiment", "list") == [], "a command of the same home finds the master by itself"
        second = shell.run("up", "--port", "0")
        assert second.returncode == 2
        assert "already runs" in second.stderr
    finally:
        master.send_signal(signal.SIGINT)
        master.communicate(timeout=30)
    assert master.returncode == 0


def test_a_port_in_use_is_named(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = shell.run("up", "--port", str(port))
    assert done.returncode == 3
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr


def test_a_master_that_others_could_reach_needs_a_token(shell: Shell) -> None:
    done = shell.run("up", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "needs a token" in done.stderr


def test_a_master_that_is_not_there_is_named(shell: Shell) -> None:
    done = shell.run("-m", "http://127.0.0.1:9", "experiment", "list")
    assert done.returncode == 3
    assert "http://127.0.0.1:9" in done.stderr
