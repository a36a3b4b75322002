"""The service of a parameter server when a disk is full: pushes go on, and nothing is held."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from trek.errors import OutsideError, StorageError
from trek.ps import Client, Rule, service
from trek.ps.journal import Journal
from trek.ps.server import Server, listen
from trek.ps.service import Service

SGD = Rule.named("SGD", lr=1.0)


def full(*_: Any, **__: Any) -> None:
    raise StorageError("no space left")


def test_a_push_does_not_depend_on_the_snapshot_that_it_makes_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start() -> Server:
        made = Service(journal=Journal(tmp_path / "journal", least_bytes=100))
        return Server(made, listen(("127.0.0.1", 0), secret=""), secret="")

    with closing(start()) as server, Client([f"127.0.0.1:{server.port}"]) as client:
        client.push_model({"w": torch.zeros(2)})
        with monkeypatch.context() as patched:
            patched.setattr(service, "write_snapshot", full)
            for count in range(1, 20):
                assert client.push_gradients({"w": -torch.ones(2)}, rule=SGD).versions == (count,)
        assert 1 <= sum("no space left" in one for one in caplog.messages) < 15, "it is not tried at every push"
        assert client.push_gradients({"w": -torch.ones(2)}, rule=SGD).accepted
    with closing(start()) as server, Client([f"127.0.0.1:{server.port}"]) as client:
        assert client.pull_dense()["w"].tolist() == [20, 20]
        while not list((tmp_path / "journal").glob("snapshot-*")):
            client.push_gradients({"w": -torch.ones(2)}, rule=SGD)


def test_a_checkpoint_that_cannot_be_written_is_refused_at_once_and_pushes_go_on(tmp_path: Path) -> None:
    servers = [Server(Service(), listen(("127.0.0.1", 0), secret=""), secret="") for _ in range(2)]
    (tmp_path / "file").touch()
    with Client([f"127.0.0.1:{server.port}" for server in servers]) as client:
        client.push_model({"w": torch.zeros(2), "v": torch.zeros(2)})
        for _ in range(2):
            with pytest.raises(OutsideError, match="cannot write its state to"):
                client.checkpoint(tmp_path / "file" / "below")
            assert all(server._service._held_until_s == 0 for server in servers)
            assert client.push_gradients({"w": -torch.ones(2)}, rule=SGD).accepted
    for server in servers:
        server.close()


def test_a_request_that_fails_unexpectedly_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Server(Service(), listen(("127.0.0.1", 0), secret=""), secret="")) as server:
        monkeypatch.setattr(Service, "_figures", lambda _: 1 / 0)
        with Client([f"127.0.0.1:{server.port}"]) as client, pytest.raises(OutsideError, match="ZeroDivisionError"):
            client.stats()
