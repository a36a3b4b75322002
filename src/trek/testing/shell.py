"""Shell: the `trek` command with a separate home, for tests of whole commands; leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.errors import MasterUnreachable

CONFIG: dict[str, Any] = {
    "description": "line",
    "hyperparameters": {"learning_rate": 0.05, "global_batch_size": 32},
    "searcher": {"name": "single", "metric": "validation_error", "max_steps": 1, "smaller_is_better": True},
    "entrypoint": "model_def:LineTrial",
}


_STOPPING_S = 60.0
_LEAVING_S = 20.0


@dataclass
class Shell:
    """Runs commands with a separate home."""

    home: Path
    folder: Path
    model: Path
    """The model folder that `create` packs."""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """What commands find around them: nothing of Trek's but the home, and how processes are started."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TREK_") or k.startswith("TREK_WARM_")}
        return {**inherited, "TREK_HOME": str(self.home), "TREK_SLOTS": "2", **self.variables}

    def run(self, *args: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """Run `trek args…` to its end."""
        return subprocess.run(
            self._command(args),
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def json(self, *args: str) -> Any:
        """What `trek args… --json` prints."""
        done = self.run(*args, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def experiment(self, number: str | int) -> Any:
        """What `trek experiment describe` tells, asked without a new process where a control plane runs."""
        address = running_address(self.home)
        if address is None:
            return self.json("experiment", "describe", str(number))
        try:
            with Client(address) as client:
                return client.experiment(int(number)).model_dump(mode="json")
        except MasterUnreachable:
            return self.experiment(number)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start `trek args…` and leave it running."""
        return subprocess.Popen(
            self._command(args),
            env=self.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "trek", *args]

    def config(self, **changes: Any) -> str:
        """Write a config, the usual one with `changes` (dots as double underscores); returns its path."""
        made = json.loads(json.dumps(CONFIG))
        for dotted, value in changes.items():
            *parents, last = dotted.split("__")
            inner = made
            for key in parents:
                inner = inner.setdefault(key, {})
            inner[last] = value
        path = self.folder / f"config-{time.monotonic_ns()}.yaml"
        path.write_text(yaml.safe_dump(made))
        return str(path)

    def create(self, *args: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        """`trek experiment create` of a changed config."""
        return self.run("experiment", "create", self.config(**changes), str(self.model), *args)

    def processes(self) -> list[psutil.Process]:
        """Whatever runs with this home: the control plane, trials, their agents."""
        found = []
        for process in psutil.process_iter():
            try:
                home = Path(process.environ().get("TREK_HOME", "/"))
                if home.is_relative_to(self.home) and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def control_plane(self) -> psutil.Process:
        """The process of the control plane."""
        return psutil.Process(json.loads((self.home / "control.json").read_text())["pid"])

    def clean_up(self) -> None:
        """Stop the control plane with all its experiments, and fail if anything of it stays."""
        self._stop_control_plane()
        _, left = psutil.wait_procs(self.processes(), timeout=_LEAVING_S)  # one that was idle may be about to end
        told = [f"{one.pid} ({one.status()}): {' '.join(one.cmdline())}" for one in left]
        for process in left:
            process.send_signal(signal.SIGKILL)
        assert not left, f"still running: {told}"

    def _stop_control_plane(self) -> None:
        """What `trek cluster stop --kill` does, without a process for it."""
        address = running_address(self.home)
        if address is None:
            return
        try:
            with Client(address) as client:
                pid = client.cluster().pid
                client.stop_cluster(kill=True)
        except MasterUnreachable:  # it was idle, and has just ended
            return
        psutil.wait_procs([one for one in self.processes() if one.pid == pid], timeout=_STOPPING_S)


def wait_until(is_true: Callable[[], bool], *, timeout_s: float = 240) -> None:
    """Wait for something another process does."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.25)
