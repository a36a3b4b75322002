"""Servers in this process and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trek.ps import Client, TableSpec
from trek.ps.journal import Journal
from trek.ps.server import Server, listen
from trek.ps.server_state import Mode
from trek.ps.service import Service


@pytest.fixture
def client(tmp_path: Path, mode: Mode) -> Iterator[Client]:
    """Of one server, with a table `t` of three numbers a row."""
    server = Server(Service(folder=tmp_path), listen(("127.0.0.1", 0), secret=""), secret="")
    with Client([f"127.0.0.1:{server.port}"]) as made:
        made.push_model(tables=[TableSpec.of(name="t", dim=3)], mode=mode)
        yield made
    server.close()


@pytest.fixture
def mode() -> Mode:
    """When the server applies pushes; a test may have another one."""
    return Mode()


class Servers:
    """Servers that can be stopped and started again at the same port."""

    def __init__(self, folder: Path, count: int, *, secret: str = "", least_bytes: int = 1 << 30) -> None:
        self._folder, self._secret, self._least_bytes = folder, secret, least_bytes
        self._servers: list[Server | None] = [None] * count
        self._ports = [0] * count
        for number in range(count):
            self.start(number)

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    def start(self, number: int) -> Service:
        folder = self._folder / str(number)
        service = Service(folder=folder / "rows", journal=Journal(folder / "journal", least_bytes=self._least_bytes))
        server = Server(service, listen(("127.0.0.1", self._ports[number]), secret=self._secret), secret=self._secret)
        self._servers[number], self._ports[number] = server, server.port
        return service

    def stop(self, number: int) -> None:
        server, self._servers[number] = self._servers[number], None
        if server is not None:
            server.close()

    def close(self) -> None:
        for number in range(len(self._servers)):
            self.stop(number)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[Client, Servers]]]:
    with ExitStack() as stack:

        def begin(count: int = 1, *, name: str = "servers", **options: Any) -> tuple[Client, Servers]:
            servers = Servers(tmp_path / name, count, **options)
            stack.callback(servers.close)
            client = Client(servers.addresses, secret=options.get("secret", ""), patience_s=20)
            stack.callback(client.close)
            return client, servers

        yield begin
