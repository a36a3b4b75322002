"""The client: typed answers, errors of the kind the control plane named, and finding it again when it has moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from trek.client.client import Address, Client
from trek.client.discovery import find_control_plane, master_url
from trek.client.models import LogLine
from trek.errors import ConfigError, InputError, MasterUnreachable, NotFound, OutsideError, StorageError, TrekError

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, *, moved: Address | None = None) -> Client:
    return Client(Address("http://master", "t0ken"), transport=httpx.MockTransport(handler), relocate=lambda: moved)


@pytest.mark.parametrize(
    ("named", "token"),
    [
        ("http://127.0.0.1:8080", "own"),
        ("localhost:8080", "own"),
        ("http://localhost:8080/trek/", "own"),
        ("http://127.0.0.1:8081", ""),
        ("http://10.0.0.1:8080", ""),
        ("http://example.org:8080", ""),
    ],
)
def test_the_own_master_needs_no_login_however_it_is_named(tmp_path: Path, named: str, token: str) -> None:
    """`-m URL` to the master of one's own home used to be refused with "log in"; nobody else may get its token."""
    (tmp_path / "control.json").write_text('{"url": "http://127.0.0.1:8080", "token": "own"}')
    address, _ = find_control_plane(named, environ={"TREK_HOME": str(tmp_path)})
    assert address.token == token


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("NotFound", NotFound),
        ("ConfigError", ConfigError),
        ("StorageError", StorageError),
        ("RankFailed", OutsideError),
        ("SystemExit", OutsideError),
        ("__doc__", OutsideError),
    ],
)
def test_an_error_comes_back_as_the_kind_it_was(kind: str, expected: type[TrekError]) -> None:
    with (
        client(lambda _: httpx.Response(400, json={"kind": kind, "message": "what is wrong"})) as made,
        pytest.raises(expected, match="what is wrong") as caught,
    ):
        made.experiments()
    assert type(caught.value) is expected


def test_an_answer_that_is_not_treks_is_said_to_be_none() -> None:
    with (
        client(lambda _: httpx.Response(502, text="<html>bad gateway</html>")) as made,
        pytest.raises(MasterUnreachable, match="502"),
    ):
        made.experiments()


def test_the_token_is_sent() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer t0ken"
        return httpx.Response(200, json=[])

    with client(handler) as made:
        assert made.experiments() == []


def test_a_control_plane_that_moved_is_asked_at_its_new_address() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "master":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=[])

    with client(handler, moved=Address("http://elsewhere", "new")) as made:
        assert made.experiments() == []
        assert made.url == "http://elsewhere"


def test_a_control_plane_that_is_gone_is_unreachable() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with client(handler) as made, pytest.raises(MasterUnreachable, match="http://master"):
        made.experiments()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host", "http://host"),
        ("host:8080", "http://host:8080"),
        ("https://host/trek/", "https://host/trek"),
    ],
)
def test_a_master_may_be_named_shortly(text: str, url: str) -> None:
    assert master_url(text) == url


@pytest.mark.parametrize("text", ["ftp://host", "http://", "file:///etc", "http:///trek"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a valid address"):
        master_url(text)


def test_the_pages_of_a_list_are_read_as_one() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        first, limit = int(request.url.params.get("cursor", 0)), int(request.url.params["limit"])
        ids = list(range(first + 1, min(first + limit, 2500) + 1))
        lines = [{"id": number, "trial_id": 1, "rank": 0, "run": 1, "time_s": 1.0, "text": ""} for number in ids]
        return httpx.Response(200, json=lines, headers={"x-next-cursor": str(ids[-1])} if len(ids) == limit else {})

    with client(answer) as asking:
        pages = asking._pages(LogLine, "/logs", page=1000)
        assert [line.id for line in pages] == list(range(1, 2501))
        assert [one.get("cursor") for one in asked] == [None, "1000", "2000"]
        assert [line.id for line in asking._pages(LogLine, "/logs", limit=1500)] == list(range(1, 1501))
        assert [one["limit"] for one in asked[3:]] == ["1000", "500"]


@pytest.mark.parametrize("name", ["\udcff", "a\nb", "\x1b[2J"])
def test_a_name_that_no_path_can_hold_is_bad_input(name: str) -> None:
    # It ended in a UnicodeEncodeError, or counted as an unreachable master.
    asking = client(lambda request: httpx.Response(500))
    for call in (asking.template, asking.registered_model, asking.checkpoint, asking.delete_template):
        with pytest.raises(InputError, match="must not contain"):
            call(name)
    with pytest.raises(InputError, match="name: "):
        asking.set_template(name, {})
    asking.close()
