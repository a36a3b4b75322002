"""Sums over the ranks of one machine through shared memory: an all-reduce without a network.

Each rank writes its values to a slot, signals the others over sockets, and adds up all slots in the order of the ranks,
so every rank gets the same bits. The sockets order memory access between processes, and close when a peer exits.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from trek.phases import reached
from trek.strategies.connections import Connections
from trek.world import World

# A larger message no longer fits into a core's cache, and is summed in several rounds.
_SLOT_BYTES = 1 << 20
# Every rank reads every slot: with more ranks, a ring over the network is as fast.
_MAX_RANKS = 16


class HostSum:
    """One rank's endpoint. Every rank calls `all_reduce` in the same order, from one thread."""

    def __init__(self, rank: int, memory: mmap.mmap, peers: dict[int, socket.socket], *, timeout_s: float) -> None:
        self._rank = rank
        self._peers = peers
        self._timeout_s = timeout_s
        self._size = len(peers) + 1
        num_slots = len(memory) // (2 * _SLOT_BYTES)
        # Two slots per rank, used in turn: a peer that has signalled in this round has finished reading the other slot.
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(2, num_slots, _SLOT_BYTES)
        self._turn = 0
        timeout = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        for peer in peers.values():
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)

    def all_reduce(self, message: torch.Tensor, *, divisor: int = 1) -> None:
        """Replace the flat `message` with its sum over ranks, divided by `divisor`."""
        for part in torch.split(message, _SLOT_BYTES // message.element_size()):
            slots = self._slots[self._turn, : self._size, : part.nbytes].view(message.dtype)
            self._turn = 1 - self._turn
            slots[self._rank].copy_(part)
            self._wait_for_peers()
            _add_up(slots, out=part)
            if divisor != 1:
                part.div_(divisor)

    def sum_in_order(self, messages: Mapping[int, torch.Tensor], *, num_messages: int) -> torch.Tensor:
        """The sum of `num_messages` flat messages, of which this rank has some, in the order of their numbers."""
        total = torch.empty_like(next(iter(messages.values())))
        step = _SLOT_BYTES // total.element_size()
        for start in range(0, len(total), step):
            part = total[start : start + step]
            slots = self._slots[self._turn, :num_messages, : part.nbytes].view(total.dtype)
            self._turn = 1 - self._turn
            for number, message in messages.items():
                slots[number].copy_(message[start : start + step])
            self._wait_for_peers()
            _add_up(slots, out=part)
        return total

    def close(self) -> None:
        """Close the connections to the peers."""
        for peer in self._peers.values():
            peer.close()

    def _wait_for_peers(self) -> None:
        """Wait until every rank has reached this point."""
        reached("before_sum")
        for peer in self._peers.values():
            with suppress(ConnectionError):  # a peer that has exited is detected below
                peer.send(b"\0")
            reached("some_of_sum")
        reached("after_sum")
        for rank, peer in self._peers.items():
            try:
                signal = peer.recv(1)
            except BlockingIOError:
                raise TimeoutError(f"rank {rank} did not reach all_reduce within {self._timeout_s:g} s") from None
            except ConnectionError:
                signal = b""
            if not signal:
                raise ConnectionResetError(f"rank {rank} disconnected")


def _add_up(slots: torch.Tensor, *, out: torch.Tensor) -> None:
    torch.add(slots[0], slots[1], out=out)
    for slot in slots[2:]:
        out.add_(slot)


def open_host_sum(
    world: World,
    *,
    num_slots: int,
    broadcast: Callable[[Any], Any],
    gather: Callable[[Any], list[Any]],
    timeout_s: float,
    connections: Connections,
) -> HostSum | None:
    """The endpoint of this rank; None on every rank if they cannot all share memory."""
    reached("sharing_memory")
    if world.local_size != world.size or world.size > _MAX_RANKS or not hasattr(socket, "send_fds"):
        return None
    with tempfile.TemporaryDirectory(prefix="trek-") as folder:
        address = str(Path(folder) / "meet")
        listener = _listen(address, world.size) if world.is_leader else None
        if listener is not None:
            connections.add(listener)
        opened = _open_endpoint(
            world, listener, broadcast(address), gather=gather, connections=connections, num_slots=num_slots
        )
        is_complete = all(gather(opened is not None))
    if opened is None:
        return None
    endpoint = HostSum(world.rank, *opened, timeout_s=timeout_s)
    if is_complete:
        return endpoint
    endpoint.close()
    return None


_Endpoint = tuple[mmap.mmap, dict[int, socket.socket]]


def _open_endpoint(
    world: World,
    listener: socket.socket | None,
    address: str,
    *,
    gather: Callable[[Any], list[Any]],
    connections: Connections,
    num_slots: int,
) -> _Endpoint | None:
    if not all(gather(Path(address).exists())):  # no shared file system, or a path too long for a socket
        if listener is not None:
            listener.close()
        return None
    try:
        if listener is not None:
            return _open_as_leader(listener, world.size, connections, num_slots)
        return _open_as_follower(world, address, connections, num_slots)
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


def _open_as_leader(listener: socket.socket, size: int, connections: Connections, num_slots: int) -> _Endpoint:
    """Create the memory and a socket between every two ranks, and send them to the ranks."""
    peers: dict[int, socket.socket] = {}
    with listener, ExitStack() as unless_done:
        for _ in range(size - 1):
            peer, _ = listener.accept()
            unless_done.enter_context(peer)
            connections.add(peer)
            if not (rank := peer.recv(1)):
                raise ConnectionResetError("a rank disconnected before it had said which one it is")
            peers[rank[0]] = peer
        memory = _memory_file()
        os.ftruncate(memory, 2 * num_slots * _SLOT_BYTES)
        _distribute(memory, peers)
        unless_done.pop_all()
    return _map_memory(memory, num_slots), dict(sorted(peers.items()))


def _distribute(memory: int, peers: dict[int, socket.socket]) -> None:
    ends: dict[int, dict[int, socket.socket]] = {rank: {} for rank in peers}
    for low, high in combinations(sorted(peers), 2):
        ends[low][high], ends[high][low] = socket.socketpair()
    for rank, peer in peers.items():
        of_rank = [end for _, end in sorted(ends[rank].items())]
        socket.send_fds(peer, [b"\0"], [memory, *(end.fileno() for end in of_rank)])
        for end in of_rank:
            end.close()


def _open_as_follower(world: World, address: str, connections: Connections, num_slots: int) -> _Endpoint:
    leader = socket.socket(socket.AF_UNIX)
    connections.add(leader)
    leader.connect(address)
    leader.send(bytes([world.rank]))
    signal, files, _, _ = socket.recv_fds(leader, 1, world.size)
    if not signal:
        leader.close()
        raise ConnectionResetError("the leader could not create the shared memory")
    memory, *ends = files
    for end in ends:
        os.set_inheritable(end, False)
    others = [rank for rank in range(1, world.size) if rank != world.rank]
    peers = {rank: socket.socket(fileno=end) for rank, end in zip(others, ends, strict=True)}
    for peer in peers.values():
        connections.add(peer)
    return _map_memory(memory, num_slots), {0: leader, **peers}


def _memory_file() -> int:
    """An unnamed file, in memory if the system supports it; it is freed when the last rank exits."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trek-host-sum")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _map_memory(memory: int, num_slots: int) -> mmap.mmap:
    try:
        return mmap.mmap(memory, 2 * num_slots * _SLOT_BYTES)
    finally:
        os.close(memory)
