"""Which addresses mean the machine that asks."""

from __future__ import annotations

import pytest

from trek.world.addresses import is_loopback


@pytest.mark.parametrize("host", ["localhost", "localhost.localdomain", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback_means_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "example.org", "127.example.org", "localhost.org"])
def test_others_do_not(host: str) -> None:
    assert not is_loopback(host)
