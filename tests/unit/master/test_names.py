"""Every name that is accepted can be shown and deleted again; the others are refused when they are given."""

from __future__ import annotations

from typing import Any

import pytest

from trek.client.wire_values import segment
from trek.control.services import Services
from trek.errors import InputError

pytestmark = pytest.mark.anyio
NAMES = (
    "a/b",
    "/",
    "..",
    ".",
    "...",
    ".a",
    "a.",
    "a b",
    " ",
    "é",
    "%2F",
    "a%2Fb",
    "?x=1",
    "#x",
    "a\\b",
    "a;b",
    "+",
    ":",
    "~",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["templates", "models", "users", "flows", "runs"])
async def test_a_name_is_refused_or_can_be_addressed(ask: Any, kind: str, name: str) -> None:
    """Templates called `a/b` were accepted, and then neither shown nor deleted, for admins either."""
    try:
        in_path = segment(name)
    except InputError:
        in_path = ""
    if kind in ("flows", "runs"):
        if not in_path or "/" in name:
            return  # what cannot be in a URL cannot be given
        flow, run = (in_path, "r") if kind == "flows" else ("f", in_path)
        named = {"flow": name if kind == "flows" else "f", "id": name if kind == "runs" else "r"}
        made = await ask("PUT", f"/api/v1/flows/{flow}/runs/{run}", json={**named, "state": "done", "started_s": 1.0})
        shown = await ask("GET", f"/api/v1/flows/{flow}/runs/{run}")
        assert (made.status_code, shown.status_code) == (204, 200)
        assert (await ask("GET", f"/api/v1/flows/{flow}/runs")).status_code == 200
        return
    body = {"templates": {"config": {}}, "models": {}, "users": {"password": "correct horse"}}[kind]
    made = await ask("POST", f"/api/v1/{kind}", json={"name": name, **body})
    listed = [one["name"] for one in (await ask("GET", f"/api/v1/{kind}")).json()]
    assert (name in listed) == (made.status_code == 201)
    if made.status_code != 201:
        assert made.status_code == 422
        return
    changed = {"json": {"role": "viewer"}} if kind == "users" else {}
    method = "PATCH" if kind == "users" else "GET"
    shown = await ask(method, f"/api/v1/{kind}/{in_path}", **changed)
    assert (shown.status_code, shown.json()["name"]) == (200, name)
    if kind != "users":
        assert (await ask("DELETE", f"/api/v1/{kind}/{in_path}")).status_code == 204


async def test_a_template_with_a_slash_of_an_earlier_version_can_be_deleted(ask: Any, services: Services) -> None:
    services.templates.set("a/b", {}, owner="ed")
    assert (await ask("GET", f"/api/v1/templates/{segment('a/b')}")).json()["name"] == "a/b"
    assert (await ask("DELETE", f"/api/v1/templates/{segment('a/b')}")).status_code == 204


@pytest.mark.parametrize("kind", ["templates", "models"])
async def test_what_does_not_exist_belongs_to_no_other_user(ask: Any, make_token: Any, kind: str) -> None:
    token = make_token("ed", "editor")
    assert (await ask("DELETE", f"/api/v1/{kind}/missing", token=token)).status_code == 404


@pytest.mark.parametrize("name", ["", ".", "..", "..."])
def test_a_name_that_no_url_can_have_is_an_error_before_it_is_sent(name: str) -> None:
    with pytest.raises(InputError, match="must not be empty, nor consist of dots"):
        segment(name)
