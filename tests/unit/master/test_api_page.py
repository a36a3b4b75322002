"""The description of the API: its security scheme, and a page that needs nothing from anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi import FastAPI

from trek.master.api_page import api_page

Asker = Callable[..., Any]


class Tags(HTMLParser):
    """All tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_openapi_names_its_security_scheme(app: FastAPI) -> None:
    """Tools made from it used to send no token."""
    schema = app.openapi()
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert schema["security"] == [{"token": []}]
    opened = {path for path, item in schema["paths"].items() for one in item.values() if one.get("security") == []}
    assert opened == {"/health", "/api/v1/login", "/api/v1/session"}


@pytest.mark.anyio
async def test_the_page_needs_no_script_and_no_other_host(app: FastAPI, ask: Asker) -> None:
    """/docs used to load Swagger UI from a CDN, and showed nothing without it."""
    reply = await ask("GET", "/docs", token="")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    tags = Tags(reply.text).found
    assert not {"script", "link", "img", "iframe", "form"} & {tag for tag, _ in tags}
    links = [attributes["href"] or "" for _, attributes in tags if "href" in attributes]
    assert all(link.startswith("#") or link == "openapi.json" for link in links)
    names = {attributes["id"] for _, attributes in tags if "id" in attributes}
    assert {link[1:] for link in links if link.startswith("#")} <= names
    shown = re.findall(r"<code>(/[^<]*)</code>", reply.text)
    expected = [path for path, item in app.openapi()["paths"].items() for _ in item]
    assert sorted(shown) == sorted(expected)


def test_what_the_description_holds_is_escaped(app: FastAPI) -> None:
    schema = {**app.openapi(), "info": {"title": "<script>alert(1)</script>", "version": '"'}}
    assert "<script>" not in api_page(schema)
