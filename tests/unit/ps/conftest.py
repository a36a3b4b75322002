"""A client of one server in this process, with a table `t` of three numbers a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.ps import Client, TableSpec
from trek.ps.server import Server, listen
from trek.ps.server_state import Mode
from trek.ps.service import Service


@pytest.fixture
def client(tmp_path: Path, mode: Mode) -> Iterator[Client]:
    server = Server(Service(folder=tmp_path), listen(("127.0.0.1", 0), secret=""), secret="")
    with Client([f"127.0.0.1:{server.port}"]) as made:
        made.push_model(tables=[TableSpec.of(name="t", dim=3)], mode=mode)
        yield made
    server.close()


@pytest.fixture
def mode() -> Mode:
    """When the server applies pushes; a test may have another one."""
    return Mode()
