"""How the ranks of a World become a torch process group, and how everybody else is kept out of it.

With a secret (every job that Trek starts has one), ranks meet in a `JobStore`, and gloo's connections are checked once
they are made: gloo accepts whoever connects first, so the ranks of every pair prove to each other that they know the
secret. Without one (torchrun, mpirun and srun give none), ranks meet as torch does, but rank 0 listens at MASTER_ADDR
alone; TREK_JOB_SECRET, the same for all ranks, gives those jobs one too. The ranks of a job whose processes come and go
meet at its coordinator, every generation of them apart.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.rendezvous import rendezvous

from trek.errors import OutsideError
from trek.phases import reached
from trek.strategies.connections import Connections
from trek.strategies.job_store import JobStore
from trek.strategies.job_store_server import JobStoreServer
from trek.wire.connections import listen_at
from trek.wire.secret import AuthenticationError, Handshake
from trek.world import World
from trek.world.addresses import is_loopback

# gloo's threads release a tensor to Python shortly after its collective has returned. A program that exits in between
# aborts, because a thread must not enter an interpreter that is shutting down; gloo does not signal when they are done.
_RELEASE_S = 0.05
_INTERFACE = "GLOO_SOCKET_IFNAME"
_CONNECT_S = 4.0
"""How long the ranks of a generation may take to connect, once all of them are about to: nothing wakes gloo up while it
connects, and it waits five times as long for a peer that is killed meanwhile."""
_STORE_S = 15.0
"""How long to try to reach the store of a generation. A coordinator that was started again has it at another port."""


@contextmanager
def joined_group(world: World, *, backend: str, timeout_s: float, connections: Connections) -> Iterator[None]:
    """A block in which this process is a rank of the World's process group."""
    connect_s = min(timeout_s, _CONNECT_S) if world.generation else timeout_s
    with ExitStack() as stack:
        store = _open_store(world, timeout_s=timeout_s, stack=stack, connections=connections)
        stack.enter_context(_gloo_interface(world))
        if world.generation:  # torch adds the rank to tracebacks, once for every group
            stack.callback(setattr, sys, "excepthook", sys.excepthook)
            _await_ranks(world, store)
        with connections.made_by_gloo():
            _init_group(world, backend=backend, store=store, timeout_s=connect_s)
        stack.callback(_leave, is_final=not world.generation)
        if world.secret and backend == "gloo":
            check_peers(world, timeout_s=timeout_s)
        if connect_s < timeout_s:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s))
        yield


def _await_ranks(world: World, store: Store) -> None:
    """Return when all ranks of the generation have come; an error as soon as it is abandoned."""
    store.set(f"here/{world.rank}", "")
    store.wait([f"here/{rank}" for rank in range(world.size)])


def _init_group(world: World, *, backend: str, store: Store, timeout_s: float) -> None:
    # torch names a group by how many there were, which differs between ranks after one of them failed to join.
    dist.distributed_c10d._world.group_count = 0
    dist.init_process_group(
        backend, store=store, rank=world.rank, world_size=world.size, timeout=timedelta(seconds=timeout_s)
    )


def _leave(*, is_final: bool) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        if is_final:
            time.sleep(_RELEASE_S)


def _open_store(world: World, *, timeout_s: float, stack: ExitStack, connections: Connections) -> Store:
    host, port, is_one_machine = world.master_addr, world.master_port, world.local_size == world.size
    if world.generation:
        store = JobStore(host, port, secret=world.secret, timeout_s=timeout_s, connect_s=_STORE_S)
        stack.callback(store.close)
        connections.add(store)
        return PrefixStore(f"{world.generation}/", store)
    if _is_torchruns_own(os.environ):
        return _torchs_store(world, timeout_s=timeout_s)
    listener = listen_at(host, port, is_one_machine=is_one_machine) if world.is_leader else None
    if not world.secret:
        fd = listener.detach() if listener is not None else None
        timeout = timedelta(seconds=timeout_s)
        return TCPStore(host, port, world.size, world.is_leader, timeout, multi_tenant=True, master_listen_fd=fd)
    if listener is not None:
        server = JobStoreServer(listener, secret=world.secret)
        stack.callback(server.close)
    # Rank 0 may listen at the address that others know it by, and at no other one.
    store = JobStore(host, port, secret=world.secret, timeout_s=timeout_s)
    stack.callback(store.close)
    return store


def _is_torchruns_own(environ: os._Environ[str]) -> bool:
    """Whether torchrun's agent listens at MASTER_PORT itself."""
    return environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _torchs_store(world: World, *, timeout_s: float) -> Store:
    url = f"tcp://{world.master_addr}:{world.master_port}"
    store: Store
    store, _, _ = next(rendezvous(url, world.rank, world.size, timeout=timedelta(seconds=timeout_s)))
    return store


@contextmanager
def _gloo_interface(world: World) -> Iterator[None]:
    """Let gloo listen on the interface by which rank 0 is reached; without it, it takes that of the host's name."""
    name = None if _INTERFACE in os.environ else interface_towards(world)
    if name is None:
        yield
        return
    os.environ[_INTERFACE] = name
    try:
        yield
    finally:
        os.environ.pop(_INTERFACE, None)


def interface_towards(world: World) -> str | None:
    """The interface with the address that this process uses to reach rank 0; None if it has no name."""
    import psutil

    target = "127.0.0.1" if world.local_size == world.size else world.master_addr
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, world.master_port or 1))  # sends nothing
        except OSError:
            return None
        own = probe.getsockname()[0]
    if not is_loopback(target) and is_loopback(own):
        return None  # rank 0 itself, by a name that means loopback here: others could not reach it there
    known = {one.address: name for name, addresses in psutil.net_if_addrs().items() for one in addresses}
    return known.get(own)


def check_peers(world: World, *, timeout_s: float) -> None:
    """OutsideError unless the process behind every connection knows the job's secret."""
    reached("proving")
    ranks = [rank for rank in range(world.size) if rank != world.rank]
    peers = {rank: Handshake(world.secret, role=f"rank {world.rank}", peer=f"rank {rank}") for rank in ranks}
    nonces = _exchange({rank: peer.nonce for rank, peer in peers.items()}, timeout_s=timeout_s)
    proofs = _exchange({rank: peer.proof(nonces[rank]) for rank, peer in peers.items()}, timeout_s=timeout_s)
    for rank, peer in peers.items():
        try:
            peer.check(nonces[rank], proofs[rank])
        except AuthenticationError as error:
            raise OutsideError(
                f"the process that connected as rank {rank} does not know the secret of this job. "
                "Somebody else on this machine or network connected to it; start it again."
            ) from error


def _exchange(messages: dict[int, bytes], *, timeout_s: float) -> dict[int, bytes]:
    """Send 32 bytes to every peer directly, and receive 32 from each."""
    received = {peer: torch.empty(32, dtype=torch.uint8) for peer in messages}
    sent = [dist.isend(torch.frombuffer(bytearray(data), dtype=torch.uint8), peer) for peer, data in messages.items()]
    waited = [dist.irecv(tensor, peer) for peer, tensor in received.items()]
    for work in [*sent, *waited]:
        if work is not None:
            work.wait(timedelta(seconds=timeout_s))
    return {peer: tensor.numpy().tobytes() for peer, tensor in received.items()}
