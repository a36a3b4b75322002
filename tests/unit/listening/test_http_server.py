"""Sockets and files of servers."""

from __future__ import annotations

import socket

import pytest

from trek.errors import OutsideError, PortInUse
from trek.listening.http_server import allow_many_files, listen


def test_an_answer_is_sent_at_once() -> None:
    """Each answer on a connection that is used again used to wait 40 ms for the client's acknowledgement."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP, "asyncio switches the delay off only where it is named"


def test_a_port_of_another_program_is_refused() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(PortInUse, match="in use by another program"):
        listen("127.0.0.1", first.getsockname()[1])
    with pytest.raises(OutsideError, match="cannot listen on"):
        listen("192.0.2.1", 0)


def test_the_number_of_files_is_at_least_what_it_was() -> None:
    assert allow_many_files() == allow_many_files() > 0
