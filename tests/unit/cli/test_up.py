"""`trek up`: where the database's URL comes from, and which proxies are trusted."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.cli.up import _check_networks, _database_url
from trek.errors import InputError

URL = "postgresql://trek:hunter2@host/trek"


def test_a_password_on_the_command_line_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    """`--db` with its password used to stand in `ps` without a word, and there was no other way to give one."""
    assert _database_url(URL, None, environ={}) == URL
    shown = capsys.readouterr().err
    assert "--db-file" in shown
    assert "hunter2" not in shown
    _database_url("postgresql://trek@host/trek", None, environ={})
    assert capsys.readouterr().err == ""


def test_the_url_comes_from_a_file_or_the_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "db"
    file.write_text(f"{URL}\n")
    environ = {"TREK_DB": "sqlite:///other.db", "HOME": "/"}
    assert _database_url(None, file, environ=environ) == URL
    assert environ == {"HOME": "/"}, "trials do not inherit it"
    assert _database_url(None, None, environ={"TREK_DB": URL}) == URL
    assert _database_url(None, None, environ={}) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", [b"", b"two lines://\nx", b"no url", b"\xff\xfe", None])
def test_a_file_without_a_url_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "db"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match="--db-file"):
        _database_url(None, file, environ={})


def test_an_option_and_a_file_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exclude"):
        _database_url(URL, tmp_path / "db", environ={})


@given(st.text(max_size=30))
def test_any_text_is_a_network_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        _check_networks((text,))


def test_an_invalid_network_is_named() -> None:
    with pytest.raises(InputError, match=r"--trusted-proxy 'proxy\.local'"):
        _check_networks(("proxy.local",))


def test_networks_and_addresses_are_accepted() -> None:
    _check_networks(("10.0.0.0/8", "127.0.0.1", "::1", "2001:db8::/32"))
