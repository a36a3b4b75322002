"""A coordinator on loopback, in a process of its own that can be killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from trek.elastic.coordinator_process import ADDRESSES, SETTINGS
from trek.elastic.membership_settings import MembershipSettings

SECRET = "only the processes of this job know it"


class Served:
    """A coordinator that runs, and can be killed and started again at the same address."""

    def __init__(self, folder: Path, settings: MembershipSettings) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._environ = {
            **os.environ,
            ADDRESSES: f"127.0.0.1:{self.port}",
            SETTINGS: json.dumps(asdict(settings)),
            "TREK_JOB_SECRET": SECRET,
            "TREK_MEMBER_DIR": str(folder),
        }
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "trek.elastic.coordinator_process"], env=self._environ)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(settings: MembershipSettings) -> Served:
        running.append(Served(tmp_path, settings))
        return running[-1]

    yield start
    for one in running:
        one.kill()
