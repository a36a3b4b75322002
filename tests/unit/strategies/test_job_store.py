"""The store of a job's ranks: like torch's to those who know the secret, mute to everybody else."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.errors import OutsideError
from trek.strategies.job_store import JobStore
from trek.strategies.job_store_server import JobStoreServer
from trek.wire import connections
from trek.wire.connections import listen_at
from trek.wire.secret import proof

SECRET = "only the ranks of this job know it"


@pytest.fixture(scope="module")
def server() -> Iterator[JobStoreServer]:
    made = JobStoreServer(listen_at("127.0.0.1", 0, is_one_machine=True), secret=SECRET)
    yield made
    made.close()


@pytest.fixture
def store(server: JobStoreServer) -> Iterator[JobStore]:
    made = JobStore("127.0.0.1", server.port, secret=SECRET, timeout_s=5)
    yield made
    made.close()


def test_it_does_what_torchs_store_does(store: JobStore) -> None:
    prefixed = dist.PrefixStore("p", store)  # calls through torch's C++, as its backends do
    prefixed.set("a", "value")
    assert prefixed.get("a") == b"value"
    assert store.get("p/a") == b"value"
    assert [prefixed.add("n", 2), prefixed.add("n", 3)] == [2, 5]
    assert (prefixed.check(["a", "n"]), prefixed.check(["a", "none"])) == (True, False)
    assert prefixed.compare_set("c", "", "1") == b"1"
    assert prefixed.compare_set("c", "other", "2") == b"1"
    assert prefixed.compare_set("c", "1", "2") == b"2"
    assert prefixed.delete_key("c")
    assert not prefixed.delete_key("c")
    store.append("l", b"\x00\xff")
    store.append("l", b"\x80")
    assert store.get("l") == b"\x00\xff\x80"


def test_a_clone_outlives_the_name_that_python_had_for_it(store: JobStore) -> None:
    clone = dist.PrefixStore("p", store).clone()  # as NCCL's process group makes one, in C++
    gc.collect()
    clone.set("cloned", "value")
    assert store.get("p/cloned") == b"value"


def test_a_key_is_waited_for(server: JobStoreServer, store: JobStore) -> None:
    other = store.clone()
    setter = threading.Timer(0.05, other.set, ("late", b"here"))
    setter.start()
    assert store.get("late") == b"here"
    setter.join()
    with pytest.raises(dist.DistStoreError, match="wait timeout"):
        store.wait(["never"], timedelta(seconds=0.01))


def test_it_listens_at_the_address_given_alone() -> None:
    """torch's store listens on every interface of the machine."""
    with listen_at("localhost", 0, is_one_machine=True) as listener:
        assert listener.getsockname()[0] in ("127.0.0.1", "::1")


def test_a_stranger_without_the_secret_gets_nothing(server: JobStoreServer, store: JobStore) -> None:
    """Another user joined a job through torch's store, which answers whoever connects."""
    store.set("address", b"of rank 0")
    with pytest.raises(OutsideError, match="does not know its secret"):
        JobStore("127.0.0.1", server.port, secret="something else entirely", timeout_s=5)
    with pytest.raises((dist.DistNetworkError, dist.DistStoreError, RuntimeError)):
        dist.TCPStore("127.0.0.1", server.port, 2, False, timedelta(seconds=2)).get("address")
    assert store.get("address") == b"of rank 0"


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_whatever_a_stranger_sends_it_learns_nothing(server: JobStoreServer, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as stranger:
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        answer = b""
        while part := _received(stranger):
            answer += part
    assert len(answer) <= 32, "the challenge, and nothing after it"


def test_an_answer_to_the_servers_challenge_cannot_be_replayed(server: JobStoreServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as stranger:
        challenge = stranger.recv(32)
        stranger.sendall(challenge)
        stranger.sendall(proof("not the secret", "client", challenge + challenge))
        assert _received(stranger) == b""


def test_a_rank_does_not_trust_whoever_took_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that listens at the job's port before rank 0 does would have been taken for it."""
    monkeypatch.setattr(connections, "HANDSHAKE_S", 0.5)
    refused = pytest.raises(OutsideError, match="does not belong to this job")
    with socket.create_server(("127.0.0.1", 0)) as squatter, refused:
        JobStore("127.0.0.1", squatter.getsockname()[1], secret=SECRET, timeout_s=5)


def test_a_taken_port_is_named_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OutsideError, match="Set MASTER_ADDR"):
        listen_at("127.0.0.1", taken.getsockname()[1], is_one_machine=True)


def test_whoever_waits_for_a_key_can_be_woken_up(store: JobStore) -> None:
    waking = threading.Timer(0.05, store.abandon)
    waking.start()
    with pytest.raises(dist.DistNetworkError, match="is gone"):
        store.get("never")
    waking.join()


def test_the_keys_of_a_generation_can_be_forgotten(server: JobStoreServer, store: JobStore) -> None:
    store.set("7/a", "old")
    store.set("8/a", "new")
    server.forget("7/")
    assert (store.check(["7/a"]), store.check(["8/a"])) == (False, True)


def test_a_store_that_has_ended_is_named() -> None:
    server = JobStoreServer(listen_at("127.0.0.1", 0, is_one_machine=True), secret=SECRET)
    store = JobStore("127.0.0.1", server.port, secret=SECRET, timeout_s=5)
    server.close()
    with pytest.raises(dist.DistNetworkError, match="the store of rank 0 is gone"):
        store.get("a")
    store.close()


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionResetError:
        return b""
