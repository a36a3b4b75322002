"""An application over a store of its own, and users to ask it as."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trek.client import models
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.master.app import make_app
from trek.system.clock import SystemClock
from trek.testing.control_parts import QUICK_HASHER, open_store
from trek.testing.trial_runner import IdleRunner

PASSWORD = "correct horse"
Asker = Callable[..., Awaitable[httpx.Response]]
MakeToken = Callable[[str, models.Role], str]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def services(store: Store, tmp_path: Path) -> Services:
    return Services.over(store, layout=Layout(tmp_path), runner=IdleRunner(), clock=SystemClock(), hasher=QUICK_HASHER)


@pytest.fixture
def app(services: Services) -> FastAPI:
    return make_app(services, token="t0ken", stop=lambda kill: None)


@pytest.fixture
def make_token(services: Services) -> MakeToken:
    """Creates a user; returns a token."""

    def make(name: str, role: models.Role) -> str:
        services.accounts.create_user(models.CreateUser(name=name, password=PASSWORD, role=role))
        return services.accounts.create_token(name, models.CreateToken()).token

    return make


@pytest.fixture
def ask(app: FastAPI) -> Asker:
    """Sends a request as the owner of the home, or with the `token` given; an empty one is not sent."""

    async def send(method: str, path: str, *, token: str = "t0ken", **more: Any) -> httpx.Response:
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.request(method, path, headers=headers, **more)

    return send
