"""MLflowServer: a real `mlflow server` on loopback, over SQLite, that a test may stop, freeze and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

_TIMEOUT_S = 240.0


class MLflowServer:
    """Its files are in `folder`, so that a server started again has what it had."""

    def __init__(self, folder: Path, *, port: int) -> None:
        self._folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens, or is going to."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = {
            "backend-store-uri": f"sqlite:///{self._folder}/mlflow.db",
            "artifacts-destination": str(self._folder / "artifacts"),
            "host": "127.0.0.1",
            "port": str(self._port),
            "workers": "1",
        }
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *(f"--{name}={value}" for name, value in options.items())],
            env={**os.environ, **quiet},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            assert process.poll() is None, "mlflow server has ended"
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise AssertionError("mlflow server did not start in time")

    def freeze(self) -> None:
        """Connections are accepted from now on, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, with all its processes."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)
