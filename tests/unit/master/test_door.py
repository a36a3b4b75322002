"""The door: nothing of a body is read before its sender is known, and never more than the route allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trek.client import models
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import TokenRow
from trek.experiments.package import MAX_BYTES
from trek.master.body_limits import body_limit

pytestmark = pytest.mark.anyio
Asker = Callable[..., Any]
MakeToken = Callable[[str, models.Role], str]


async def call(app: FastAPI, scope: dict[str, Any]) -> tuple[int, int]:
    """The status of a request whose body would never end, and how often it was asked for."""
    asked, statuses = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"a" * 2**20, "more_body": True}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    base = {"type": "http", "http_version": "1.1", "query_string": b"", "root_path": "", "scheme": "http"}
    await app({**base, "raw_path": scope["path"].encode(), **scope}, receive, send)
    return statuses[0], asked


@pytest.mark.parametrize("token", ["", "wrong", "trial.1.1.forged"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/v1/experiments"), ("PUT", "/api/v1/archives/x"), ("POST", "/nowhere")]
)
async def test_nothing_is_read_from_whoever_has_no_token(app: FastAPI, token: str, method: str, path: str) -> None:
    """Used to read the whole body into memory, without a limit, and to answer 401 then."""
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
    assert await call(app, {"method": method, "path": path, "headers": headers}) == (401, 0)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/experiments"),
        ("POST", "/api/v1/login"),
        ("PUT", "/api/v1/archives/x"),
        ("PUT", "/api/v1/flows/f/runs/r"),
        ("POST", "/api/v1/trials/1/reports"),
    ],
)
async def test_a_body_is_cut_at_its_limit_while_it_arrives(app: FastAPI, method: str, path: str) -> None:
    """Used to read JSON without a limit."""
    headers = [(b"authorization", b"Bearer t0ken"), (b"content-type", b"application/json")]
    status, asked = await call(app, {"method": method, "path": path, "headers": headers})
    assert status == 413
    assert asked <= body_limit(method, path).max_bytes // 2**20 + 1


async def test_an_announced_body_over_the_limit_is_not_read(app: FastAPI) -> None:
    headers = [(b"authorization", b"Bearer t0ken"), (b"content-length", str(2**40).encode())]
    assert await call(app, {"method": "POST", "path": "/api/v1/experiments", "headers": headers}) == (413, 0)


async def test_an_upload_may_be_as_large_as_an_archive() -> None:
    assert body_limit("PUT", "/api/v1/archives/abc").max_bytes == MAX_BYTES
    assert body_limit("GET", "/api/v1/archives/abc").max_bytes < MAX_BYTES


async def test_a_revoked_token_is_not_recognised(services: Services, ask: Asker, make_token: MakeToken) -> None:
    token = make_token("vic", "viewer")
    assert (await ask("GET", "/api/v1/whoami", token=token)).status_code == 200
    services.accounts.revoke_token("vic", services.accounts.tokens("vic")[0].id)
    assert (await ask("GET", "/api/v1/whoami", token=token)).status_code == 401


async def test_a_recognised_token_takes_no_query(store: Store, ask: Asker, make_token: MakeToken) -> None:
    token = make_token("vic", "viewer")
    await ask("GET", "/api/v1/whoami", token=token)
    with store.writing() as session:
        session.query(TokenRow).delete()
    assert (await ask("GET", "/api/v1/whoami", token=token)).status_code == 200


_NAMES = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", min_size=1, max_size=40)
_USED = ["authorization", "content-length", "content-type", "if-none-match", "x-forwarded-for", "host", "cookie"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    headers=st.lists(st.tuples(st.one_of(st.sampled_from(_USED), _NAMES), st.binary(max_size=300)), max_size=8),
    body=st.binary(max_size=200),
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/experiments"), ("POST", "/api/v1/templates")])
async def test_no_header_and_no_body_is_a_server_error(
    app: FastAPI, method: str, path: str, headers: list[tuple[str, bytes]], body: bytes
) -> None:
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    raw = [(name.lower().encode(), value) for name, value in headers]
    for token in ([], [(b"authorization", b"Bearer t0ken"), (b"content-type", b"application/json")]):
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "root_path": ""}
        more = {"query_string": b"", "raw_path": path.encode(), "scheme": "http", "headers": [*token, *raw]}
        await app({**scope, **more}, receive, send)
    assert len(statuses) == 2
    assert max(statuses) < 500
