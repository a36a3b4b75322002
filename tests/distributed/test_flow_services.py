"""Services of flows: real processes that answer on ports of loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import trek
from trek.errors import TrainingError
from trek.flow.service_steps import does_answer

SERVER = ["python", "-m", "http.server", "--bind", "127.0.0.1"]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return int(reply.status)


def _run(flow: trek.Flow, **settings: Any) -> Any:
    return flow.run(show=False, parallel=1, **settings)


def test_a_service_is_there_for_steps_after_it_and_ends_with_the_run(port: int) -> None:
    flow = trek.Flow("served")
    number = flow.param("port", port)
    url = flow.service("web", [*SERVER, number], ready=number)
    status = flow.step(get, url)
    run = _run(flow)
    assert (run[url], run[status]) == (f"http://127.0.0.1:{port}", 200)
    assert not does_answer(run[url])
    assert _run(flow, resume=run.id).states()["web"] == "done", "a resumed run starts it again"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit(3)", "exited with code 3"),
        ("pass", "ended before it answered"),
        ("import time; time.sleep(600)", r"timed out after 0\.5 s"),
    ],
)
def test_a_service_that_does_not_answer_is_a_failure(port: int, code: str, message: str) -> None:
    flow = trek.Flow("silent")
    url = flow.service("web", ["python", "-c", code], ready=port, timeout_s=0.5 if "sleep" in code else 60)
    flow.step(get, url)
    with pytest.raises(TrainingError, match=f"step 'web' failed: .*{message}"):
        _run(flow)


def test_a_service_that_ends_while_it_is_needed_fails_the_run_and_what_comes_after(port: int, tmp_path: Path) -> None:
    def end(url: str) -> None:
        urllib.request.urlopen(f"{url}/", data=b"end", timeout=10).close()
        while does_answer(url):
            pass

    script = tmp_path / "mortal.py"
    script.write_text(
        textwrap.dedent("""
            import http.server, os, sys, threading
            class Handler(http.server.BaseHTTPRequestHandler):
                def do_POST(self):
                    self.send_response(200)
                    self.end_headers()
                    threading.Timer(0.2, os._exit, [0]).start()
            http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
        """)
    )
    flow = trek.Flow("mortal")
    url = flow.service("web", ["python", str(script), str(port)], ready=port)
    ended = flow.step(end, url)
    waited = flow.command("wait", ["sleep", "0.5"], after=[ended])
    flow.step(get, url, after=[waited])
    with pytest.raises(TrainingError, match="step 'web' failed: it ended while steps needed it"):
        _run(flow)


def test_a_port_that_somebody_else_has_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        flow = trek.Flow("taken")
        flow.service("web", ["sleep", "600"], ready=taken.getsockname()[1])
        with pytest.raises(TrainingError, match=r"another program already answers at tcp://127\.0\.0\.1:\d+"):
            _run(flow)


def test_a_detached_service_stays_is_kept_and_replaced_and_can_be_stopped(port: int, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(
        textwrap.dedent(f"""
            import trek
            flow = trek.Flow("detached")
            folder = flow.param("folder", ".")
            flow.service("web", [*{SERVER}, "-d", folder, "{port}"], ready=f"http://127.0.0.1:{port}/", detach=True)
        """)
    )

    def command(*args: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "trek", "flow", *args, "--json"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def pid() -> int:
        state = Path(os.environ["TREK_HOME"]) / "flows" / "detached" / "services" / "web" / "rank_0.json"
        return int(json.loads(state.read_text())["pid"])

    try:
        command("run", "flow.py")
        first = pid()
        assert get(f"http://127.0.0.1:{port}/flow.py") == 200
        command("run", "flow.py")
        assert pid() == first
        command("run", "flow.py", "--param", f"folder={tmp_path.parent}")
        assert pid() != first
    finally:
        stopped = command("stop", "detached")
    assert stopped == [{"name": "web"}]
    assert not does_answer(f"tcp://127.0.0.1:{port}")
