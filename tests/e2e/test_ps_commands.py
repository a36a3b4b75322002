"""Parameter servers as a user starts them: by `trek ps`, and with an experiment."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from trek.ps import Client, Rule, TableSpec
from trek.testing.shell import Shell


def test_a_server_is_served_and_looked_at() -> None:
    command = [sys.executable, "-m", "trek", "ps"]
    with subprocess.Popen([*command, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with Client([address]) as client:
            client.push_model(tables=[TableSpec(name="user", dim=2)])
            client.push_gradients(rows={"user": ([1, 2], client.pull_rows("user", [1, 2]))}, rule=Rule.named("SGD"))
        shown = subprocess.run([*command, "stats", address], capture_output=True, text=True, check=True).stdout
        told = subprocess.run([*command, "stats", address, "--json"], capture_output=True, text=True, check=True).stdout
        server.terminate()
    assert server.returncode == 0
    assert "version 1" in shown
    [figures] = json.loads(told)
    assert figures["tables"]["user"]["rows"] == 2


def test_a_model_moves_to_other_servers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trek", "ps"]
    serve = [*command, "serve", "--port", "0"]
    with ExitStack() as stack:
        servers = [stack.enter_context(subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)) for _ in range(3)]
        for server in servers:
            stack.callback(server.terminate)
        old, *new = [server.stdout.readline().split()[-1] for server in servers if server.stdout is not None]
        client = stack.enter_context(Client([old]))
        client.push_model(tables=[TableSpec(name="user", dim=2)])
        rows = client.pull_rows("user", range(9))
        client.push_gradients(rows={"user": (range(9), rows)}, rule=Rule.named("SGD", lr=1.0))
        move = [*command, "move", old, "--to", new[0], "--to", new[1], "--folder", str(tmp_path), "--json"]
        told = subprocess.run(move, capture_output=True, text=True, check=True).stdout
        assert json.loads(told) == {"servers": new}
        assert not client.pull_rows("user", range(9)).any()
        assert sum(server["tables"]["user"]["rows"] for server in client.stats()) == 9
        assert client.num_servers == 2


def test_an_experiment_trains_on_servers(shared_shell: Shell) -> None:
    settings = {"training__strategy": "ps", "resources__servers": 1}
    done = shared_shell.create("--json", **settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "completed"


def test_servers_without_their_strategy_are_refused(shared_shell: Shell) -> None:
    done = shared_shell.create(resources__servers=2)
    assert done.returncode == 2
    assert "needs at least 1 server, and others have none" in done.stderr
