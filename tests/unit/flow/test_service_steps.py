"""Addresses of services."""

from __future__ import annotations

import pytest

from trek.errors import InputError
from trek.flow.service_steps import does_answer, parse_address


@pytest.mark.parametrize("ready", [8080, "8080"])
def test_a_port_is_one_of_this_machine(ready: int | str) -> None:
    assert parse_address(ready) == "tcp://127.0.0.1:8080"


def test_a_url_stays_as_it_is() -> None:
    assert parse_address("http://localhost:1/ping") == "http://localhost:1/ping"


@pytest.mark.parametrize("ready", ["nonsense", "ftp://host", "http://", "http://host:many", 99999, 0])
def test_what_is_no_address_is_named(ready: int | str) -> None:
    with pytest.raises(InputError, match=f"port or a URL .*{str(ready)[:4]}"):
        parse_address(ready)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "http://127.0.0.1:1/"])
def test_nobody_answers_where_nobody_listens(address: str) -> None:
    assert not does_answer(address)
