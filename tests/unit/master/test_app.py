"""The routes: a token for everything, errors as one sentence, and nothing else of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.supervisor import Supervisor
from trek.engines.local import LocalEngine
from trek.experiments.package import pack
from trek.master.app import make_app

pytestmark = pytest.mark.anyio
TOKEN = {"authorization": "Bearer t0ken"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    store, layout = Store.at(tmp_path), Layout(tmp_path)
    supervisor = Supervisor(store, layout=layout, engine=LocalEngine(), slots=1, environment=dict)
    yield make_app(Services(store, layout=layout, supervisor=supervisor), token="t0ken", stop=lambda kill: None)
    store.close()


async def ask(app: FastAPI, method: str, path: str, **kwargs: object) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.request(method, path, **{"headers": TOKEN, **kwargs})  # type: ignore[arg-type]


async def test_every_route_of_the_api_wants_the_token(app: FastAPI) -> None:
    paths = [(path, method) for path, item in app.openapi()["paths"].items() for method in item]
    assert len(paths) > 10
    for path, method in paths:
        if path.startswith("/api/"):
            filled = path.replace("{experiment_id}", "1").replace("{trial_id}", "1").replace("{sha256}", "a")
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": b"Bearer \xff"}):
                reply = await ask(app, method, filled.replace("{uuid}", "a"), headers=headers)
                assert reply.status_code == 401, (method, path)
                assert reply.json()["kind"] == "NotAllowed"


async def test_health_is_open(app: FastAPI) -> None:
    assert (await ask(app, "GET", "/health", headers={})).json()["status"] == "ok"


async def test_what_is_not_there_is_404(app: FastAPI) -> None:
    reply = await ask(app, "GET", "/api/v1/experiments/7")
    assert (reply.status_code, reply.json()["kind"]) == (404, "NotFound")


async def test_a_request_that_makes_no_sense_is_one_sentence(app: FastAPI) -> None:
    reply = await ask(app, "GET", "/api/v1/experiments/seven")
    assert reply.status_code == 422
    assert "experiment_id" in reply.json()["message"]


async def test_a_config_that_is_wrong_stores_nothing(app: FastAPI, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    package = pack(tmp_path / "model")
    path = f"/api/v1/archives/{package.sha256}"
    assert (await ask(app, "PUT", path, content=package.data)).status_code == 204
    body = {"config": {"entrypont": "a:b"}, "archive": package.sha256}
    reply = await ask(app, "POST", "/api/v1/experiments", json=body)
    assert (reply.status_code, reply.json()["kind"]) == (400, "ConfigError")
    assert "Did you mean 'entrypoint'?" in reply.json()["message"]
    assert (await ask(app, "GET", "/api/v1/experiments")).json() == []


async def test_an_archive_comes_back_as_it_was_sent(app: FastAPI, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    package = pack(tmp_path / "model")
    path = f"/api/v1/archives/{package.sha256}"
    assert (await ask(app, "GET", f"{path}/exists")).json() is False
    await ask(app, "PUT", path, content=package.data)
    assert (await ask(app, "GET", f"{path}/exists")).json() is True
    assert (await ask(app, "GET", path)).content == package.data


@pytest.mark.parametrize("data", [b"no archive", b""])
async def test_what_is_no_archive_is_refused(app: FastAPI, data: bytes) -> None:
    sha256 = hashlib.sha256(data).hexdigest()
    reply = await ask(app, "PUT", f"/api/v1/archives/{sha256}", content=data)
    assert (reply.status_code, reply.json()["kind"]) == (400, "InputError")


async def test_an_archive_under_a_wrong_name_is_refused(app: FastAPI) -> None:
    reply = await ask(app, "PUT", "/api/v1/archives/..%2f..%2fevil", content=b"x")
    assert reply.status_code in (400, 404)
