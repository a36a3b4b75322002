"""Limits on logins: by name and address, whatever is sent at the same time, and however the names are varied."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from trek.client import models
from trek.control.services import Services
from trek.errors import TooManyRequests
from trek.listening.http_server import server_config
from trek.master import password_work
from trek.master.app import make_app
from trek.master.login_limits import (
    MAX_OVERALL,
    MAX_PER_ADDRESS,
    MAX_PER_NAME,
    MAX_PER_NAME_AND_ADDRESS,
    WINDOW_S,
    LoginLimits,
    network_of,
)
from trek.master.password_work import MAX_RUNNING, MAX_WAITING, PasswordWork
from trek.testing.clock import FakeClock

Asker = Callable[..., Any]
MakeToken = Callable[[str, models.Role], str]


def count(limits: LoginLimits, attempts: list[tuple[str, str]]) -> int:
    """How many of the attempts (name, address) pass."""
    passed = 0
    for name, address in attempts:
        with contextlib.suppress(TooManyRequests):
            limits.begin(name, address=address)
            passed += 1
    return passed


@pytest.mark.parametrize(
    ("attempts", "limit"),
    [
        ([("ann", "10.0.0.1")] * 400, MAX_PER_NAME_AND_ADDRESS),
        ([(f"user{n}", "10.0.0.1") for n in range(400)], MAX_PER_ADDRESS),
        ([("ann", f"10.0.{n}.1") for n in range(200)], MAX_PER_NAME),
        ([(f"user{n}", f"10.0.{n % 250}.{n // 250}") for n in range(800)], MAX_OVERALL),
        ([(f"user{n}", f"2001:db8::{n:x}") for n in range(400)], MAX_PER_ADDRESS),
    ],
    ids=["one name", "sprayed names", "one name from everywhere", "everything varied", "one IPv6 network"],
)
def test_attempts_are_limited(attempts: list[tuple[str, str]], limit: int) -> None:
    """Spraying names used to pass, since only pairs of name and address were counted."""
    clock = FakeClock()
    limits = LoginLimits(clock=clock)
    assert count(limits, attempts) == limit
    clock.advance(WINDOW_S)
    assert count(limits, attempts[:1]) == 1


def test_a_login_that_succeeds_does_not_count() -> None:
    limits = LoginLimits(clock=FakeClock())
    for _ in range(2 * MAX_OVERALL):
        limits.succeeded(limits.begin("ann", address="10.0.0.1"))


def test_attempts_at_the_same_time_count_before_they_are_checked() -> None:
    """60 attempts at once used to be verified, since only failures counted, after the hash."""
    limits, passed = LoginLimits(clock=FakeClock()), []
    start = threading.Barrier(40)

    def attempt() -> None:
        start.wait()
        passed.append(count(limits, [("ann", "10.0.0.1")] * 3))

    threads = [threading.Thread(target=attempt) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == MAX_PER_NAME_AND_ADDRESS


@given(st.text(max_size=60))
def test_any_text_is_an_address(text: str) -> None:
    assert isinstance(network_of(text), str)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(services: Services, clock: FakeClock) -> FastAPI:
    return make_app(services, token="t0ken", stop=lambda kill: None, clock=clock)


@pytest.mark.anyio
async def test_too_many_is_429_with_the_time_to_wait(ask: Asker, clock: FakeClock, make_token: MakeToken) -> None:
    """Used to be a 403 without Retry-After."""
    make_token("ann", "viewer")
    wrong = {"name": "ann", "password": "wrong"}
    tried = await asyncio.gather(*[ask("POST", "/api/v1/login", token="", json=wrong) for _ in range(12)])
    statuses = sorted(one.status_code for one in tried)
    assert statuses == [403] * MAX_PER_NAME_AND_ADDRESS + [429] * (12 - MAX_PER_NAME_AND_ADDRESS)
    refused = next(one for one in tried if one.status_code == 429)
    assert 0 < int(refused.headers["retry-after"]) <= WINDOW_S
    assert refused.json()["kind"] == "TooManyRequests"
    right = {"name": "ann", "password": "correct horse"}
    assert (await ask("POST", "/api/v1/login", token="", json=right)).status_code == 429
    clock.advance(WINDOW_S)
    assert (await ask("POST", "/api/v1/login", token="", json=right)).status_code == 200


@pytest.mark.anyio
async def test_no_proxy_is_trusted_unless_it_is_named(app: FastAPI) -> None:
    """X-Forwarded-For used to be believed from loopback, so that every attempt had an address of its own."""
    seen = {}
    for proxies in ((), ("127.0.0.0/8",)):
        config = server_config(app, trusted_proxies=proxies)
        config.load()
        statuses = []
        transport = httpx.ASGITransport(config.loaded_app, client=("127.0.0.1", 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for number in range(MAX_PER_NAME_AND_ADDRESS + 2):
                headers = {"x-forwarded-for": f"10.0.0.{number}"}
                body = {"name": "zed", "password": "x"}
                statuses.append((await client.post("/api/v1/login", json=body, headers=headers)).status_code)
        seen[proxies] = statuses
    assert seen[()][-2:] == [429, 429]
    assert set(seen[("127.0.0.0/8",)]) == {403}, "each address has its own count"


@pytest.mark.anyio
async def test_passwords_are_hashed_a_few_at_a_time_and_the_rest_is_refused() -> None:
    """40 logins at once used to take all threads of the application, and 64 MiB each."""
    work, release = PasswordWork(), threading.Event()
    running, most = 0, 0
    lock = threading.Lock()

    def hash_it() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait()
        with lock:
            running -= 1

    tasks = [asyncio.create_task(work.run(hash_it)) for _ in range(MAX_RUNNING + MAX_WAITING + 8)]
    while sum(task.done() for task in tasks) < 8:
        await asyncio.sleep(0)
    release.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert most <= MAX_RUNNING
    assert sum(isinstance(one, TooManyRequests) for one in found) == 8
    assert 2 <= password_work.MAX_RUNNING <= 4


@pytest.mark.anyio
async def test_an_own_password_is_changed_with_the_old_one(ask: Asker, make_token: MakeToken) -> None:
    """Whoever had a token could set a new password, and so take the account over."""
    token = make_token("ann", "viewer")
    path, new = "/api/v1/users/ann", {"password": "battery staple"}
    assert (await ask("PATCH", path, token=token, json=new)).status_code == 403
    wrong = {**new, "old_password": "wrong"}
    assert (await ask("PATCH", path, token=token, json=wrong)).status_code == 403
    right = {**new, "old_password": "correct horse"}
    assert (await ask("PATCH", path, token=token, json=right)).status_code == 200
    login = {"name": "ann", "password": "battery staple"}
    assert (await ask("POST", "/api/v1/login", token="", json=login)).status_code == 200


@pytest.mark.anyio
async def test_the_old_password_cannot_be_guessed_without_end(ask: Asker, make_token: MakeToken) -> None:
    token = make_token("ann", "viewer")
    body = {"password": "battery staple", "old_password": "wrong"}
    tried = [await ask("PATCH", "/api/v1/users/ann", token=token, json=body) for _ in range(7)]
    assert [one.status_code for one in tried][-2:] == [429, 429]


@pytest.mark.anyio
async def test_an_admin_sets_the_password_of_others_but_not_so_the_own_one(ask: Asker, make_token: MakeToken) -> None:
    make_token("vic", "viewer")
    token, body = make_token("ann", "admin"), {"password": "battery staple"}
    assert (await ask("PATCH", "/api/v1/users/vic", token=token, json=body)).status_code == 200
    assert (await ask("PATCH", "/api/v1/users/ann", token=token, json=body)).status_code == 403
    assert (await ask("PATCH", "/api/v1/users/ann", json=body)).status_code == 200, "the owner of the home"
