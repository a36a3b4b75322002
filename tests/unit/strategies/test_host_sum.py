"""Sums through shared memory: equal on every rank, exact, and nobody waits for ever."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from trek.strategies.connections import Connections
from trek.strategies.host_sum import HostSum, open_host_sum
from trek.world import World


class Ring:
    """Ranks as threads of this process, and how they talk while they meet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._told: list[Any] = [None] * size

    def run(self, body: Callable[[HostSum | None, int], Any], *, timeout_s: float = 240.0, local: bool = True) -> list:
        def one(rank: int) -> Any:
            world = World(rank=rank, size=self.size, local_rank=rank, local_size=self.size)
            if not local:
                world = World(rank=rank, size=self.size)
            end = open_host_sum(
                world,
                broadcast=lambda value: self._gather(rank, value)[0],
                gather=lambda value: self._gather(rank, value),
                num_slots=self.size,
                timeout_s=timeout_s,
                connections=Connections(),
            )
            try:
                return body(end, rank)
            finally:
                if end is not None:
                    end.close()

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(one, range(self.size)))

    def _gather(self, rank: int, value: Any) -> list[Any]:
        self._told[rank] = value
        self._barrier.wait()
        told = list(self._told)
        self._barrier.wait()
        return told


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_rank_gets_the_sum_in_the_order_of_the_ranks(size: int, dtype: torch.dtype) -> None:
    lengths = [1, 7, 300_000, 1 << 20, 3]  # within one slot, and over several
    generator = torch.Generator().manual_seed(size)
    given = [[torch.randn(n, generator=generator).to(dtype) for _ in range(size)] for n in lengths]

    def body(end: HostSum | None, rank: int) -> list[torch.Tensor]:
        assert end is not None
        messages = [parts[rank].clone() for parts in given]
        for message in messages:
            end.all_reduce(message)
        return messages

    expected = [sum(parts[1:], parts[0]) for parts in given]
    for summed in Ring(size).run(body):
        assert all(torch.equal(got, wanted) for got, wanted in zip(summed, expected, strict=True))


def test_a_rank_that_runs_ahead_does_not_write_over_what_others_still_read() -> None:
    def body(end: HostSum | None, rank: int) -> list[float]:
        assert end is not None
        seen = []
        for step in range(500):
            message = torch.full((64,), float(step))
            end.all_reduce(message)
            seen.append(message.unique().tolist())
        return seen

    assert Ring(3).run(body) == [[[3.0 * step] for step in range(500)]] * 3


def test_a_peer_that_leaves_is_named() -> None:
    def body(end: HostSum | None, rank: int) -> str:
        assert end is not None
        if rank == 1:
            return "left"
        with pytest.raises(ConnectionResetError, match="rank 1 disconnected"):
            end.all_reduce(torch.ones(3))
        return "noticed"

    assert Ring(2).run(body) == ["noticed", "left"]


def test_a_peer_that_never_comes_is_waited_for_as_long_as_set() -> None:
    done = threading.Event()

    def body(end: HostSum | None, rank: int) -> str:
        assert end is not None
        if rank == 1:
            assert done.wait(30)
            return "late"
        with pytest.raises(TimeoutError, match=r"rank 1 did not reach all_reduce within 0\.5 s"):
            end.all_reduce(torch.ones(3))
        done.set()
        return "gave up"

    assert Ring(2).run(body, timeout_s=0.5) == ["gave up", "late"]


def test_ranks_of_several_machines_share_nothing() -> None:
    assert Ring(2).run(lambda end, rank: end, local=False) == [None, None]


def test_where_a_socket_cannot_be_made_nobody_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)  # a socket's address holds about 100 characters
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert Ring(2).run(lambda end, rank: end) == [None, None]
    assert list(folder.iterdir()) == []


def test_where_memory_cannot_be_made_nobody_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise OSError("not allowed here")

    monkeypatch.setattr("os.memfd_create", refuse)
    assert Ring(3).run(lambda end, rank: end) == [None, None, None]
