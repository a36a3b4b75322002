"""Sums over the ranks of one machine, through memory they share: an all-reduce without a network underneath.

Ranks write what they have into slots, tell each other so over sockets, and each adds all slots up, in the order of the
ranks: every rank gets the same bits. The sockets order memory between processes, and they end when a peer does.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from trek.world import World

# More than this no longer fits a core's cache, and is summed in several rounds.
_SLOT_BYTES = 1 << 20
# Everyone reads everyone's slot: with more ranks, a ring over the network is as good.
_MOST_RANKS = 16


class HostSum:
    """One rank's end: `all_reduce` is called by every rank in the same order, from one thread."""

    def __init__(self, rank: int, memory: mmap.mmap, peers: dict[int, socket.socket], *, timeout_s: float) -> None:
        self._rank = rank
        self._peers = peers
        self._timeout_s = timeout_s
        size = len(peers) + 1
        # Two slots a rank, in turn: whoever has met the others in this round is done reading the one before.
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(2, size, _SLOT_BYTES)
        self._turn = 0
        patience = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        for peer in peers.values():
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)

    def all_reduce(self, message: torch.Tensor, *, divisor: int = 1) -> None:
        """Replace a flat `message` by its sum over ranks, divided by `divisor`."""
        for part in torch.split(message, _SLOT_BYTES // message.element_size()):
            slots = self._slots[self._turn, :, : part.nbytes].view(message.dtype)
            self._turn = 1 - self._turn
            slots[self._rank].copy_(part)
            self._meet()
            torch.add(slots[0], slots[1], out=part)
            for slot in slots[2:]:
                part.add_(slot)
            if divisor != 1:
                part.div_(divisor)

    def close(self) -> None:
        """Part from the peers."""
        for peer in self._peers.values():
            peer.close()

    def _meet(self) -> None:
        """Wait until every rank has come as far as this one."""
        for peer in self._peers.values():
            with suppress(ConnectionError):  # whoever has left is missed below
                peer.send(b"\0")
        for rank, peer in self._peers.items():
            try:
                word = peer.recv(1)
            except BlockingIOError:
                raise TimeoutError(f"rank {rank} did not come to all_reduce within {self._timeout_s:g} s") from None
            except ConnectionError:
                word = b""
            if not word:
                raise ConnectionResetError(f"rank {rank} has left")


def open_host_sum(
    world: World, *, broadcast: Callable[[Any], Any], gather: Callable[[Any], list[Any]], timeout_s: float
) -> HostSum | None:
    """Every rank's end, or None on every rank where memory cannot be shared by all of them."""
    if world.local_size != world.size or world.size > _MOST_RANKS or not hasattr(socket, "send_fds"):
        return None
    with tempfile.TemporaryDirectory(prefix="trek-") as folder:
        address = str(Path(folder) / "meet")
        listener = _listen(address, world.size) if world.is_leader else None
        own = _open_end(world, listener, broadcast(address), gather=gather)
        is_whole = all(gather(own is not None))
    if own is None:
        return None
    end = HostSum(world.rank, *own, timeout_s=timeout_s)
    if is_whole:
        return end
    end.close()
    return None


_End = tuple[mmap.mmap, dict[int, socket.socket]]


def _open_end(
    world: World, listener: socket.socket | None, address: str, *, gather: Callable[[Any], list[Any]]
) -> _End | None:
    if not all(gather(Path(address).exists())):  # one machine, but not one file system; or a path too long for a socket
        if listener is not None:
            listener.close()
        return None
    try:
        return _lead(listener, world.size) if listener is not None else _follow(world, address)
    except OSError:
        return None


def _listen(address: str, size: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
        listener.listen(size)
    except OSError:
        listener.close()
        return None
    return listener


def _lead(listener: socket.socket, size: int) -> _End:
    """Make the memory and a socket between every two ranks, and hand them out."""
    peers: dict[int, socket.socket] = {}
    with listener, ExitStack() as unless_done:
        for _ in range(size - 1):
            peer, _ = listener.accept()
            unless_done.enter_context(peer)
            peers[peer.recv(1)[0]] = peer
        memory = _memory_file()
        os.ftruncate(memory, 2 * size * _SLOT_BYTES)
        _hand_out(memory, peers)
        unless_done.pop_all()
    return _mapped(memory, size), dict(sorted(peers.items()))


def _hand_out(memory: int, peers: dict[int, socket.socket]) -> None:
    ends: dict[int, dict[int, socket.socket]] = {rank: {} for rank in peers}
    for low, high in combinations(sorted(peers), 2):
        ends[low][high], ends[high][low] = socket.socketpair()
    for rank, peer in peers.items():
        own = [end for _, end in sorted(ends[rank].items())]
        socket.send_fds(peer, [b"\0"], [memory, *(end.fileno() for end in own)])
        for end in own:
            end.close()


def _follow(world: World, address: str) -> _End:
    leader = socket.socket(socket.AF_UNIX)
    leader.connect(address)
    leader.send(bytes([world.rank]))
    word, files, _, _ = socket.recv_fds(leader, 1, world.size)
    if not word:
        leader.close()
        raise ConnectionResetError("the leader could not make what is shared")
    memory, *ends = files
    for end in ends:
        os.set_inheritable(end, False)
    others = [rank for rank in range(1, world.size) if rank != world.rank]
    peers = {rank: socket.socket(fileno=end) for rank, end in zip(others, ends, strict=True)}
    return _mapped(memory, world.size), {0: leader, **peers}


def _memory_file() -> int:
    """A file without a name, in memory where the system has such: it goes when the last rank does, however it ends."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trek-host-sum")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _mapped(memory: int, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(memory, 2 * size * _SLOT_BYTES)
    finally:
        os.close(memory)
