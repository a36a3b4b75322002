"""Sessions of browsers: a link works once, the cookie is out of reach, and other sites cannot use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trek.client import models
from trek.control.accounts import Accounts, Identity
from trek.control.services import Services
from trek.errors import NotAllowed
from trek.master.prefix import UnderPrefix
from trek.master.web_sessions import LINK_S, WebSessions
from trek.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
Asker = Callable[..., Any]
MakeToken = Callable[[str, models.Role], str]
PASSWORD = "correct horse"


@pytest.fixture
async def browser(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def follow(browser: httpx.AsyncClient, ask: Asker, *, token: str = "t0ken") -> dict[str, Any]:
    code = (await ask("POST", "/api/v1/session-links", token=token)).json()["code"]
    reply = await browser.post("/api/v1/session", json={"code": code})
    assert reply.status_code == 200
    return dict(reply.json())


async def test_a_link_logs_a_browser_in_once(browser: httpx.AsyncClient, ask: Asker) -> None:
    code = (await ask("POST", "/api/v1/session-links")).json()["code"]
    reply = await browser.post("/api/v1/session", json={"code": code})
    assert reply.json()["user"]["role"] == "admin"
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert (await browser.get("/api/v1/session")).json()["csrf"] == reply.json()["csrf"]
    assert (await browser.post("/api/v1/session", json={"code": code})).status_code == 403


async def test_a_link_gives_the_rights_of_whoever_made_it(
    browser: httpx.AsyncClient, ask: Asker, make_token: MakeToken
) -> None:
    session = await follow(browser, ask, token=make_token("vic", "viewer"))
    assert session["user"] == {"name": "vic", "role": "viewer", "is_active": True, "created_s": 0.0}
    headers = {"x-trek-csrf": session["csrf"]}
    reply = await browser.post("/api/v1/users", headers=headers, json={"name": "eve", "password": PASSWORD})
    assert reply.status_code == 403


async def test_a_password_logs_in_and_a_wrong_one_does_not(browser: httpx.AsyncClient, make_token: MakeToken) -> None:
    make_token("ed", "editor")
    assert (await browser.post("/api/v1/session", json={"name": "ed", "password": "wrong"})).status_code == 403
    assert not browser.cookies
    assert (await browser.post("/api/v1/session", json={"name": "ed", "password": PASSWORD})).status_code == 200
    assert (await browser.get("/api/v1/whoami")).json()["name"] == "ed"


@pytest.mark.parametrize("sent", [{}, {"x-trek-csrf": ""}, {"x-trek-csrf": "0" * 64}])
async def test_a_cookie_alone_changes_nothing(browser: httpx.AsyncClient, ask: Asker, sent: dict[str, str]) -> None:
    await follow(browser, ask)
    assert (await browser.get("/api/v1/users")).status_code == 200
    assert (await browser.post("/api/v1/tokens", json={}, headers=sent)).status_code == 403
    assert (await browser.delete("/api/v1/session", headers=sent)).status_code == 403
    assert (await browser.post("/api/v1/cluster/stop", headers=sent)).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_is_refused_whatever_it_knows(browser: httpx.AsyncClient, ask: Asker, site: str) -> None:
    session = await follow(browser, ask)
    headers = {"x-trek-csrf": session["csrf"], "sec-fetch-site": site}
    assert (await browser.post("/api/v1/cluster/stop", headers=headers)).status_code == 403
    login = await browser.post("/api/v1/session", json={"name": "a", "password": "b"}, headers={"sec-fetch-site": site})
    assert login.json()["message"] == "requests of other sites are refused."


async def test_logging_out_ends_the_session(browser: httpx.AsyncClient, ask: Asker, make_token: MakeToken) -> None:
    for token in ("t0ken", make_token("ed", "editor")):
        session = await follow(browser, ask, token=token)
        kept = dict(browser.cookies)
        assert (await browser.delete("/api/v1/session", headers={"x-trek-csrf": session["csrf"]})).status_code == 204
        assert not browser.cookies
        browser.cookies.update(kept)
        assert (await browser.get("/api/v1/session")).status_code == 401
        browser.cookies.clear()


async def test_a_token_has_no_session_to_close(ask: Asker) -> None:
    assert (await ask("GET", "/api/v1/session")).json()["csrf"] == ""
    assert (await ask("DELETE", "/api/v1/session")).status_code == 400


async def test_guessing_codes_is_limited(browser: httpx.AsyncClient) -> None:
    statuses = [(await browser.post("/api/v1/session", json={"code": f"guess {at}"})).status_code for at in range(12)]
    assert statuses[0] == 403
    assert statuses[-1] == 429


async def test_under_a_prefix_the_cookie_stays_there(app: FastAPI, ask: Asker) -> None:
    code = (await ask("POST", "/api/v1/session-links")).json()["code"]
    served = UnderPrefix(app, prefix="/trek")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="https://test") as client:
        reply = await client.post("/trek/api/v1/session", json={"code": code})
    assert "path=/trek" in reply.headers["set-cookie"].lower()
    assert "secure" in reply.headers["set-cookie"].lower()


async def test_a_link_expires(services: Services) -> None:
    clock = FakeClock()
    sessions = WebSessions(services.accounts, clock=clock)
    link = sessions.make_link("t0ken")
    assert sessions.has_links
    clock.advance(LINK_S + 1)
    assert not sessions.has_links
    with pytest.raises(NotAllowed, match="expired"):
        sessions.follow_link(link.code, find=lambda token: Identity("me", "admin", is_home_owner=True))


END_OF_LOGIN: dict[str, Callable[[Services, str], object]] = {
    "a new password": lambda services, _: services.accounts.change_user("ed", models.ChangeUser(password=PASSWORD * 2)),
    "a deactivation": lambda services, _: services.accounts.change_user("ed", models.ChangeUser(is_active=False)),
    "a revocation": lambda services, token: services.accounts.revoke(token),
}


@pytest.mark.parametrize("event", END_OF_LOGIN)
@pytest.mark.parametrize("is_reactivated", [False, True])
async def test_a_link_ends_with_the_login_that_made_it(
    browser: httpx.AsyncClient,
    ask: Asker,
    make_token: MakeToken,
    services: Services,
    event: str,
    is_reactivated: bool,
) -> None:
    token = make_token("ed", "editor")
    code = (await ask("POST", "/api/v1/session-links", token=token)).json()["code"]
    END_OF_LOGIN[event](services, token)
    if is_reactivated:
        services.accounts.change_user("ed", models.ChangeUser(is_active=True))
    reply = await browser.post("/api/v1/session", json={"code": code})
    assert reply.status_code == 403
    assert "ended with the login" in reply.json()["message"]
    assert not browser.cookies


async def test_a_link_made_in_a_session_ends_with_it(browser: httpx.AsyncClient, ask: Asker) -> None:
    session = await follow(browser, ask)
    headers = {"x-trek-csrf": session["csrf"]}
    code = (await browser.post("/api/v1/session-links", headers=headers)).json()["code"]
    assert (await browser.delete("/api/v1/session", headers=headers)).status_code == 204
    assert (await browser.post("/api/v1/session", json={"code": code})).status_code == 403


async def test_a_link_gives_the_role_that_its_maker_has_now(
    browser: httpx.AsyncClient, ask: Asker, make_token: MakeToken, services: Services
) -> None:
    code = (await ask("POST", "/api/v1/session-links", token=make_token("ed", "admin"))).json()["code"]
    services.accounts.change_user("ed", models.ChangeUser(role="viewer"))
    reply = await browser.post("/api/v1/session", json={"code": code})
    assert reply.json()["user"]["role"] == "viewer"


@pytest.mark.parametrize("path", ["tokens", "session"])
async def test_a_request_that_was_let_in_before_a_new_password_opens_nothing_after_it(
    browser: httpx.AsyncClient,
    ask: Asker,
    make_token: MakeToken,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    token = make_token("ed", "editor")
    code = (await ask("POST", "/api/v1/session-links", token=token)).json()["code"]
    add = Accounts.create_token

    def add_late(self: Accounts, *args: Any, **options: Any) -> models.Token:
        services.accounts.change_user("ed", models.ChangeUser(password=PASSWORD * 2))
        return add(self, *args, **options)

    monkeypatch.setattr(Accounts, "create_token", add_late)
    if path == "tokens":
        reply = await ask("POST", "/api/v1/tokens", token=token, json={})
    else:
        reply = await browser.post("/api/v1/session", json={"code": code})
    assert reply.status_code == 403
    assert services.accounts.tokens("ed") == []
