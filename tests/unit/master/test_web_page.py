"""The page's files: everybody gets them, with headers that keep other sites and foreign scripts out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trek.master import web_page
from trek.master.prefix import UnderPrefix

pytestmark = pytest.mark.anyio
Asker = Callable[..., Any]


@pytest.fixture
def page(tmp_path: Path) -> FastAPI:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Trek</title>")
    (tmp_path / "assets" / "page-1.js").write_text("let a = 1")
    (tmp_path / "secret.txt").write_text("secret")
    app = FastAPI()
    app.include_router(web_page.make_router(tmp_path))
    app.add_middleware(web_page.StrictHeaders)
    return app


async def get(app: Any, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.get(path, headers={"accept-encoding": "identity", **headers})


async def test_the_page_may_load_only_what_is_its_own(page: FastAPI) -> None:
    reply = await get(page, "/")
    policy = reply.headers["content-security-policy"]
    assert reply.status_code == 200
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-frame-options"] == "DENY"
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_assets_are_kept_for_ever_and_the_page_is_asked_for_again(page: FastAPI) -> None:
    assert "immutable" in (await get(page, "/assets/page-1.js")).headers["cache-control"]
    assert (await get(page, "/")).headers["cache-control"] == "no-cache"


async def test_assets_are_sent_compressed(page: FastAPI) -> None:
    reply = await get(page, "/assets/page-1.js", **{"accept-encoding": "gzip"})
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.text == "let a = 1"


@pytest.mark.parametrize("path", ["/assets/..%2fsecret.txt", "/assets/nothing.js", "/assets/%2e%2e%2fsecret.txt"])
async def test_nothing_else_is_served(page: FastAPI, path: str) -> None:
    assert (await get(page, path)).status_code == 404


async def test_without_a_built_page_the_address_says_how_to_build_it(tmp_path: Path) -> None:
    app = FastAPI()
    app.include_router(web_page.make_router(tmp_path / "nothing"))
    reply = await get(app, "/")
    assert reply.status_code == 503
    assert "make web" in reply.text


async def test_a_prefix_without_a_slash_is_completed(page: FastAPI) -> None:
    reply = await get(UnderPrefix(page, prefix="/trek"), "/trek")
    assert reply.headers["location"] == "/trek/"
    assert (await get(UnderPrefix(page, prefix="/trek"), "/trek/")).status_code == 200


async def test_answers_of_the_api_run_and_frame_nothing(ask: Asker) -> None:
    reply = await ask("GET", "/api/v1/cluster")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert reply.headers["x-frame-options"] == "DENY"
