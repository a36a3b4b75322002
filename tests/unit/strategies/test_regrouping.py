"""Regrouping: what breaks for one rank is over for its peers, and how long a rank has waited is known."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import torch

from trek.strategies.base import GroupBroken, ReduceOp
from trek.strategies.ddp import DDP
from trek.strategies.regrouping import Regrouping
from trek.world import World


class Breaking(DDP):
    """A group whose collectives fail."""

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        raise RuntimeError("the peer is gone")


@pytest.fixture
def peer() -> Iterator[tuple[Regrouping, socket.socket]]:
    """A rank, and the other end of its connection to a peer."""
    strategy = Regrouping(World(max_size=2))
    inner = Breaking(World(rank=0, size=2))
    strategy._inner = inner
    own, other = socket.socketpair()
    inner.connections.add(own)
    other.settimeout(10)
    with own, other:
        yield strategy, other


def test_a_peer_need_not_wait_for_a_rank_whose_collective_failed(peer: tuple[Regrouping, socket.socket]) -> None:
    """The failure keeps torch's group alive, and with it the sockets that the peer waits at."""
    strategy, other = peer
    with pytest.raises(GroupBroken, match="the peer is gone"):
        strategy.reduce(torch.zeros(1))
    assert other.recv(1) == b"", "the connection has ended"
    assert strategy.is_broken


def test_an_error_of_a_backward_pass_that_is_the_groups_ends_it_for_the_peers(
    peer: tuple[Regrouping, socket.socket],
) -> None:
    strategy, other = peer
    assert not strategy.has_lost_peer(RuntimeError("shapes differ"))
    assert strategy.has_lost_peer(ConnectionResetError("rank 1 disconnected"))
    assert other.recv(1) == b""


def test_the_time_in_a_collective_is_known(
    peer: tuple[Regrouping, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, _ = peer
    seen: list[float] = []

    def reduce(self: Breaking, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        while not strategy.waiting_s():
            pass
        seen.append(strategy.waiting_s())
        return tensor

    monkeypatch.setattr(Breaking, "reduce", reduce)
    strategy.reduce(torch.zeros(1))
    assert seen
    assert strategy.waiting_s() == 0
