"""Connections that only take up room are closed, and others are answered meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI

from trek.master.connection_guard import HEAD_TIMEOUT_S, STALL_TIMEOUT_S, ConnectionGuard, Wait, to_close
from trek.master.control_plane import _listen
from trek.master.http_server import HttpServer, allow_many_files, server_config
from trek.testing.clock import FakeClock
from trek.testing.shell import wait_until


@contextlib.contextmanager
def serving(app: FastAPI, *, clock: FakeClock, max_idle: int) -> Iterator[tuple[str, int]]:
    """The application on a real socket."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        server = HttpServer(server_config(app), clock=clock, max_idle=max_idle)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def _open(address: tuple[str, int], *, sent: bytes) -> socket.socket:
    connection = socket.create_connection(address)
    connection.sendall(sent)
    return connection


def _is_closed(connection: socket.socket) -> bool:
    """Whether nothing more can come, having read what did."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nX-a: "], ids=["nothing", "half a head"])
def test_idle_connections_do_not_lock_others_out(app: FastAPI, sent: bytes) -> None:
    """1,100 connections without a request used to make the master deaf, for as long as they stayed."""
    clock = FakeClock()
    with serving(app, clock=clock, max_idle=20) as address, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_open(address, sent=sent)) for _ in range(80)]
        wait_until(lambda: sum(map(_is_closed, opened)) >= 60)
        assert httpx.get(f"http://127.0.0.1:{address[1]}/health").status_code == 200
        clock.advance(HEAD_TIMEOUT_S)
        wait_until(lambda: all(map(_is_closed, opened)))


def test_a_refused_body_is_not_awaited_for_ever(app: FastAPI) -> None:
    clock = FakeClock()
    head = b"POST /api/v1/experiments HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"
    with serving(app, clock=clock, max_idle=20) as address, _open(address, sent=head) as connection:
        connection.settimeout(30)
        assert b" 401 " in connection.recv(2000)
        clock.advance(HEAD_TIMEOUT_S)
        wait_until(lambda: _is_closed(connection))


def test_an_answer_is_sent_at_once() -> None:
    """Each answer on a connection that is used again used to wait 40 ms for the client's acknowledgement."""
    with _listen("127.0.0.1", 0) as listener, _open(listener.getsockname(), sent=b""):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP, "asyncio switches the delay off only where it is named"


def test_who_waited_too_long_is_closed_and_then_the_oldest() -> None:
    waits = {name: Wait("request", 0, float(since)) for name, since in (("a", 0), ("b", 6), ("c", 5), ("d", 7))}
    waits["slow"] = Wait("reader", 10, 0.0)
    assert to_close(waits, now_s=9.0, max_idle=4) == []
    assert to_close(waits, now_s=9.0, max_idle=2) == ["a", "c"]
    assert to_close(waits, now_s=HEAD_TIMEOUT_S, max_idle=4) == ["a"]
    assert to_close(waits, now_s=STALL_TIMEOUT_S, max_idle=4)[-1] == "slow"


class Cycle:
    """One request and its answer; equal to itself alone."""

    def __init__(self, is_complete: bool) -> None:
        self.response_complete = is_complete


class Connection:
    """As uvicorn's: a cycle per request, and a transport to abort."""

    def __init__(self) -> None:
        self.cycle: Cycle | None = None
        self.flow = SimpleNamespace(write_paused=False)
        self.transport = SimpleNamespace(abort=self._abort, get_write_buffer_size=lambda: self.num_unread)
        self.num_unread = 100
        self.is_open = True

    def _abort(self) -> None:
        self.is_open = False

    def answer(self, *, is_complete: bool = True) -> None:
        self.cycle = Cycle(is_complete)


def test_a_connection_that_is_used_again_and_again_stays() -> None:
    connection, clock = Connection(), FakeClock()
    guard = ConnectionGuard([connection], clock=clock)
    for _ in range(5):
        connection.answer()
        guard.sweep()
        clock.advance(0.7 * HEAD_TIMEOUT_S)
        guard.sweep()
    assert connection.is_open
    clock.advance(0.7 * HEAD_TIMEOUT_S)
    guard.sweep()
    assert not connection.is_open


def test_an_answer_may_take_as_long_as_it_is_read() -> None:
    connection, clock = Connection(), FakeClock()
    guard = ConnectionGuard([connection], clock=clock)
    connection.answer(is_complete=False)
    guard.sweep()
    clock.advance(100 * STALL_TIMEOUT_S)
    connection.flow.write_paused = True
    for size in (300, 200, 300):
        connection.num_unread = size
        guard.sweep()
        clock.advance(0.7 * STALL_TIMEOUT_S)
    assert connection.is_open
    guard.sweep()
    clock.advance(0.7 * STALL_TIMEOUT_S)
    guard.sweep()
    assert not connection.is_open


def test_the_number_of_files_is_at_least_what_it_was() -> None:
    assert allow_many_files() == allow_many_files() > 0
