"""Artifacts over HTTP: only the trial's own run writes, and nothing that is kept can run in the page's origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials import artifacts

pytestmark = pytest.mark.anyio


@pytest.fixture
def _trial(store: Store) -> None:
    row = {"hparams": {}, "seed": 0, "length": 1, "created_s": 1.0, "state": "running", "run": 3}
    with store.writing() as session:
        session.add(ExperimentRow(id=1, name="x", config={}, archive="", created_s=1.0))
        session.flush()
        session.add(TrialRow(id=1, experiment_id=1, key=0, **row))


async def put(ask: Any, name: str, content: bytes = b"x", *, run: int = 3) -> int:
    reply = await ask("PUT", "/api/v1/trials/1/artifacts", params={"name": name, "run": run}, content=content)
    return int(reply.status_code)


@pytest.mark.usefixtures("_trial")
async def test_what_is_put_is_listed_and_comes_back_as_it_was(ask: Any, tmp_path: Path) -> None:
    for name, content in (("plots/a.png", b"\x89PNG"), ("a page.html", b"<script>alert(1)</script>"), ("a.png", b"1")):
        assert await put(ask, name, content) == 200
    assert await put(ask, "a.png", b"two") == 200
    listed = (await ask("GET", "/api/v1/trials/1/artifacts")).json()
    assert [(one["name"], one["num_bytes"]) for one in listed] == [
        ("a page.html", 25),
        ("a.png", 3),
        ("plots/a.png", 4),
    ]
    shown, page = [
        await ask("GET", "/api/v1/trials/1/artifacts/file", params={"name": name}) for name in ("a.png", "a page.html")
    ]
    assert (shown.content, shown.headers["content-type"]) == (b"two", "image/png")
    assert (page.content, page.headers["content-type"]) == (b"<script>alert(1)</script>", "application/octet-stream")
    assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20page.html"
    for reply in (shown, page):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.usefixtures("_trial")
async def test_what_is_made_from_a_trial_that_has_ended_can_be_added(ask: Any, store: Store) -> None:
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = "completed"
    assert await put(ask, "a.csv") != 200
    added = await ask("PUT", "/api/v1/trials/1/artifacts/file", params={"name": "report/a.csv"}, content=b"x")
    assert (added.status_code, added.json()["name"]) == (200, "report/a.csv")
    assert [one["name"] for one in (await ask("GET", "/api/v1/trials/1/artifacts")).json()] == ["report/a.csv"]


@pytest.mark.usefixtures("_trial")
@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", ".a", "", "a\0b", "a%2f..%2fb"])
async def test_names_that_lead_elsewhere_are_refused(ask: Any, name: str, tmp_path: Path) -> None:
    assert await put(ask, name) == 400
    reply = await ask("GET", "/api/v1/trials/1/artifacts/file", params={"name": name})
    assert reply.status_code == 400


@pytest.mark.usefixtures("_trial")
async def test_what_is_not_there_and_who_is_too_late(ask: Any, services: Services) -> None:
    assert (await ask("GET", "/api/v1/trials/1/artifacts/file", params={"name": "a"})).status_code == 404
    assert (await ask("GET", "/api/v1/trials/2/artifacts")).status_code == 404
    assert await put(ask, "a", run=2) >= 400
    assert services.artifacts.all(1) == []


@pytest.mark.usefixtures("_trial")
async def test_a_trial_keeps_only_so_much(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_FILES", 2)
    monkeypatch.setattr(artifacts, "MAX_TRIAL_BYTES", 10)
    assert [await put(ask, name, b"1234") for name in ("a", "b", "b", "c")] == [200, 200, 200, 400]
    assert await put(ask, "a", b"1234567") == 400  # with b, too many bytes
