"""examples/serve: training, a service and requests to it, as one flow."""

from __future__ import annotations

import socket
from pathlib import Path

from trek.testing.shell import Shell

FLOW = Path(__file__).resolve().parents[2] / "examples" / "serve" / "flow.py"


def test_the_flow_trains_serves_and_asks(shell: Shell) -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = made.getsockname()[1]
    done = shell.run("flow", "run", str(FLOW), "--param", f"port={port}")
    assert done.returncode == 0, done.stderr
    [log] = shell.home.glob("flows/serve/runs/*/logs/ask.log")
    assert "accuracy 0.9" in log.read_text()
