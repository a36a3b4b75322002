"""Connections that only take up room are closed, and others are answered meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from trek.listening.connection_guard import HEAD_TIMEOUT_S
from trek.listening.http_server import HttpServer, server_config
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
