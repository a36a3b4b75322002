"""The routes: a token for everything, errors as one sentence, and nothing else of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trek.client import models
from trek.client.flow_models import FlowRunDetails
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, LogTable, MetricTable, ModelRow, TemplateRow, TrialRow
from trek.experiments.config import ExperimentConfig
from trek.experiments.package import pack
from trek.master.prefix import UnderPrefix

pytestmark = pytest.mark.anyio
CONFIG = ExperimentConfig.parse(
    {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
).normal_form()
TOKEN = {"authorization": "Bearer t0ken"}


async def ask(app: FastAPI | UnderPrefix, method: str, path: str, **kwargs: object) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.request(method, path, **{"headers": TOKEN, **kwargs})  # type: ignore[arg-type]


OPEN = {("/health", "get"), ("/api/v1/login", "post"), ("/api/v1/session", "post")}
PAGE = {"/", "/favicon.svg", "/assets/{name}"}


def routes(app: FastAPI) -> list[tuple[str, str]]:
    found = [(path, method) for path, item in app.openapi()["paths"].items() for method in item]
    return [route for route in found if route not in OPEN]


def all_routes(routes: Iterable[Any]) -> Iterator[Any]:
    """Routes of the application and of the routers in it, those that the OpenAPI does not show too."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from all_routes(inner.routes) if inner is not None else [route]


def test_no_route_hides_from_the_tables(app: FastAPI) -> None:
    found = list(all_routes(app.routes))
    shown = [route for route in found if getattr(route, "include_in_schema", False)]
    assert {route.path for route in found if route not in shown} == {"/openapi.json", "/docs", *PAGE}
    assert sum(len(route.methods) for route in shown) == len(routes(app)) + len(OPEN)


def filled(path: str) -> str:
    values = {"experiment_id": "1", "trial_id": "1", "uuid": "u", "sha256": "0" * 64, "name": "vic", "token_id": "99"}
    values |= {"flow": "f", "run": "r"}
    return path.format(**values)


async def test_every_route_wants_a_token(app: FastAPI) -> None:
    assert len(routes(app)) > 20
    for path, method in routes(app):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": b"Bearer \xff"}):
            reply = await ask(app, method, filled(path), headers=headers)
            assert reply.status_code == 401, (method, path)
            assert reply.json()["kind"] == "NotAllowed"


ADMIN, EDITOR, VIEWER, TRIAL = "admin", "editor", "viewer", "trial 1"
EVERYBODY = {ADMIN, EDITOR, VIEWER}
# Who may pass each route: `editor` owns experiment 1, `other` is an editor who does not.
PERMISSIONS: dict[tuple[str, str], set[str]] = {
    ("/experiments", "get"): {*EVERYBODY, "other"},
    ("/experiments", "post"): {ADMIN, EDITOR, "other"},
    ("/experiments/{experiment_id}", "get"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}", "patch"): {ADMIN, EDITOR},
    ("/experiments/{experiment_id}", "delete"): {ADMIN, EDITOR},
    ("/experiments/{experiment_id}/kill", "post"): {ADMIN, EDITOR},
    ("/experiments/{experiment_id}/pause", "post"): {ADMIN, EDITOR},
    ("/experiments/{experiment_id}/activate", "post"): {ADMIN, EDITOR},
    ("/experiments/{experiment_id}/logs", "get"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}/trials", "get"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}/best-checkpoint", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/metrics", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/logs", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/kill", "post"): {ADMIN, EDITOR},
    ("/trials/{trial_id}/scale", "post"): {ADMIN, EDITOR},
    ("/trials/{trial_id}/assignment", "get"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/reports", "post"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/artifacts", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/artifacts", "put"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/artifacts/file", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/checkpoints", "get"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/checkpoints/{name}", "put"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/checkpoints/{name}/files", "get"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/start-checkpoint/files", "get"): {ADMIN, TRIAL},
    ("/trials/{trial_id}/artifacts/file", "put"): {ADMIN, EDITOR},
    ("/trials/{trial_id}/best-checkpoint", "get"): {*EVERYBODY, "other"},
    ("/checkpoints", "get"): {*EVERYBODY, "other"},
    ("/checkpoints/{uuid}", "get"): {*EVERYBODY, "other"},
    ("/checkpoints/{uuid}", "delete"): {ADMIN, EDITOR},
    ("/checkpoints/{uuid}/files", "get"): {*EVERYBODY, "other"},
    ("/archives/{sha256}", "put"): {ADMIN, EDITOR, "other"},
    ("/archives/{sha256}", "get"): {ADMIN, EDITOR, "other", TRIAL},  # code may hold secrets
    ("/archives/{sha256}/exists", "get"): {*EVERYBODY, "other", TRIAL},
    ("/whoami", "get"): {*EVERYBODY, "other"},
    ("/users", "get"): {*EVERYBODY, "other"},
    ("/users", "post"): {ADMIN},
    ("/users/{name}", "patch"): {ADMIN, VIEWER},  # the viewer is called vic, and changes the own password
    ("/tokens", "get"): {*EVERYBODY, "other"},
    ("/tokens", "post"): {*EVERYBODY, "other"},
    ("/tokens/{token_id}", "delete"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}/fork", "post"): {ADMIN, EDITOR, "other"},
    ("/jobs", "get"): {*EVERYBODY, "other"},
    ("/models", "get"): {*EVERYBODY, "other"},
    ("/models", "post"): {ADMIN, EDITOR, "other"},
    ("/models/{name}", "get"): {*EVERYBODY, "other"},
    ("/models/{name}", "delete"): {ADMIN, EDITOR},
    ("/models/{name}/versions", "post"): {ADMIN, EDITOR},
    ("/templates", "get"): {*EVERYBODY, "other"},
    ("/templates", "post"): {ADMIN, EDITOR},
    ("/templates/{name}", "get"): {*EVERYBODY, "other"},
    ("/templates/{name}", "delete"): {ADMIN, EDITOR},
    ("/curves", "get"): {*EVERYBODY, "other"},
    ("/metric-names", "get"): {*EVERYBODY, "other"},
    ("/sparklines", "get"): {*EVERYBODY, "other"},
    ("/config-schema", "get"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}/rungs", "get"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}/files", "get"): {ADMIN, EDITOR, "other"},
    ("/experiments/{experiment_id}/file", "get"): {ADMIN, EDITOR, "other"},
    ("/experiments/{experiment_id}/fork/check", "post"): {ADMIN, EDITOR, "other"},
    ("/experiments/{experiment_id}/logs/outline", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/history", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/workers", "get"): {*EVERYBODY, "other"},
    ("/trials/{trial_id}/logs/outline", "get"): {*EVERYBODY, "other"},
    ("/session", "get"): {*EVERYBODY, "other"},
    ("/session", "delete"): {*EVERYBODY, "other"},
    ("/session-links", "post"): {*EVERYBODY, "other"},
    ("/changes/events", "get"): {*EVERYBODY, "other"},
    ("/events", "get"): {*EVERYBODY, "other"},
    ("/experiments/{experiment_id}/events", "get"): {*EVERYBODY, "other"},
    ("/metrics", "get"): {*EVERYBODY, "other"},
    ("/flows", "get"): {*EVERYBODY, "other"},
    ("/flows/{flow}/runs", "get"): {*EVERYBODY, "other"},
    ("/flows/{flow}/runs/{run}", "get"): {*EVERYBODY, "other"},
    ("/flows/{flow}/runs/{run}/log", "get"): {*EVERYBODY, "other"},
    ("/flows/{flow}/runs/{run}", "put"): {ADMIN, EDITOR},
    ("/cluster", "get"): {*EVERYBODY, "other"},
    ("/cluster/stop", "post"): {ADMIN},
}


BODIES: dict[str, dict[str, object]] = {
    "/users/{name}": {"password": "correct horse", "old_password": "correct horse"},
    "/templates": {"name": "vic", "config": {}},
    "/trials/{trial_id}/scale": {"slots": 1},
    "/models/{name}/versions": {"checkpoint": "none"},
    "/flows/{flow}/runs/{run}": {"id": "r", "flow": "f", "state": "done", "started_s": 1.0},
}


async def test_the_table_of_permissions_holds_for_every_route_and_role(
    app: FastAPI, services: Services, store: Store
) -> None:
    assert {(path.removeprefix("/api/v1"), method) for path, method in routes(app)} == set(PERMISSIONS)
    accounts = services.accounts
    people = {ADMIN: "ann", EDITOR: "ed", VIEWER: "vic", "other": "olga"}
    for role, name in people.items():
        kind = "editor" if role == "other" else role
        accounts.create_user(models.CreateUser(name=name, password="correct horse", role=kind))  # type: ignore[arg-type]
    tokens = {role: accounts.create_token(name, models.CreateToken()).token for role, name in people.items()}
    tokens |= {f"trial {trial}": accounts.trial_token(trial, 1) for trial in (1, 2)}
    tokens["forged"] = accounts.trial_token(1, 1)[:-1] + "x"
    for (path, method), allowed in PERMISSIONS.items():
        for who, token in tokens.items():
            if method != "get" or who == ADMIN:
                _prepare(services, store)
                _prepare_trials(store)
            body = BODIES.get(path, {})
            headers = {"authorization": f"Bearer {token}"}
            prefix = "" if path == "/metrics" else "/api/v1"
            if path in ("/events", "/changes/events") and who in allowed:
                continue  # it would stream for ever
            reply = await ask(app, method, f"{prefix}{filled(path)}", headers=headers, json=body)
            is_stopped = reply.status_code in (401, 403)
            assert is_stopped is (who not in allowed), (method, path, who, reply.text)
            if path == "/users/{name}" and who in allowed:
                tokens[VIEWER] = accounts.create_token("vic", models.CreateToken()).token


def _prepare(services: Services, store: Store) -> None:
    """Experiment 1 of ed's, with trial 1 and checkpoint u, and his run r of flow f, whatever was done to them."""
    services.flows.save("f", "r", FlowRunDetails(id="r", flow="f", state="done", started_s=1.0), owner="ed")
    with store.writing() as session:
        session.merge(
            ExperimentRow(id=1, name="x", owner="ed", state="completed", config=CONFIG, archive="0" * 64, created_s=1.0)
        )
        session.flush()
        session.merge(
            TrialRow(id=1, experiment_id=1, key=0, state="completed", hparams={}, seed=0, length=1, created_s=1.0)
        )
        session.flush()
        session.merge(ModelRow(id=1, name="vic", owner="ed", created_s=1.0))
        session.merge(TemplateRow(name="vic", config={}, owner="ed", created_s=1.0))
        session.merge(CheckpointTable(uuid="u", trial_id=1, batches=1, path="/nowhere", num_bytes=0, time_s=1.0))


def _prepare_trials(store: Store) -> None:
    """Trial 1 of ed's experiment runs, and so does trial 2 of another experiment with other code."""
    row = {"state": "running", "run": 1, "hparams": {}, "seed": 0, "length": 1, "created_s": 1.0}
    with store.writing() as session:
        session.merge(ExperimentRow(id=2, name="y", owner="olga", config=CONFIG, archive="1" * 64, created_s=1.0))
        session.flush()
        session.merge(TrialRow(id=1, experiment_id=1, key=0, **row))
        session.merge(TrialRow(id=2, experiment_id=2, key=0, **row))


async def test_experiments_come_in_pages(app: FastAPI, services: Services, store: Store) -> None:
    with store.writing() as session:
        for number in range(1, 6):
            session.add(ExperimentRow(id=number, name=str(number), config=CONFIG, archive="", created_s=1.0))
    first = await ask(app, "GET", "/api/v1/experiments?limit=2")
    assert [one["id"] for one in first.json()] == [5, 4]
    second = await ask(app, "GET", f"/api/v1/experiments?limit=4&cursor={first.headers['x-next-cursor']}")
    assert [one["id"] for one in second.json()] == [3, 2, 1]
    assert "x-next-cursor" not in second.headers


async def test_what_a_client_has_is_not_sent_again(app: FastAPI, services: Services, store: Store) -> None:
    first = await ask(app, "GET", "/api/v1/experiments")
    asked = {**TOKEN, "if-none-match": first.headers["etag"]}
    again = await ask(app, "GET", "/api/v1/experiments", headers=asked)
    assert (again.status_code, again.content) == (304, b"")
    _prepare(services, store)
    assert (await ask(app, "GET", "/api/v1/experiments", headers=asked)).status_code == 200


async def test_an_ended_experiment_is_told_once_and_the_stream_ends(
    app: FastAPI, services: Services, store: Store
) -> None:
    _prepare(services, store)
    reply = await ask(app, "GET", "/api/v1/experiments/1/events")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text.startswith("event: experiment\ndata: {")
    assert reply.text.count("event:") == 1


async def test_prometheus_reads_states_and_slots(app: FastAPI, services: Services, store: Store) -> None:
    _prepare(services, store)
    lines = (await ask(app, "GET", "/metrics")).text.splitlines()
    assert 'trek_experiments{state="completed"} 1' in lines
    assert "trek_slots 1" in lines


def _fill(services: Services, store: Store) -> None:
    """Experiment 1 with trials 1 to 5; trial 1 has reports, lines and checkpoints, and flow f five runs."""
    _prepare(services, store)
    for number in range(5):
        run = FlowRunDetails(id=f"r{number}", flow="f", state="done", started_s=0.1)
        services.flows.save("f", run.id, run, owner="ed")
    row = {"experiment_id": 1, "hparams": {}, "seed": 0, "length": 1, "created_s": 1.0}
    with store.writing() as session:
        for number in range(2, 6):
            session.add(TrialRow(id=number, key=number, **row))
        for number in range(5):
            point = {"batches": number // 2, "metrics": {}, "time_s": 1.0}
            session.add(MetricTable(trial_id=1, group=f"a:{number % 2}", **point))
            session.add(LogTable(trial_id=1, run=1, rank=0, position=number, time_s=1.0, text=str(number)))
            made = {"uuid": f"c{number}", "batches": number, "path": "/nowhere", "num_bytes": 0}
            session.add(CheckpointTable(trial_id=1, time_s=0.1 + (number > 2), **made))


@pytest.mark.parametrize(
    ("path", "key", "expected"),
    [
        ("/experiments/1/trials", "id", [1, 2, 3, 4, 5]),
        ("/trials/1/metrics", "group", ["a:0", "a:0", "a:0", "a:1", "a:1"]),
        ("/trials/1/logs", "text", ["0", "1", "2", "3", "4"]),
        ("/experiments/1/logs", "text", ["0", "1", "2", "3", "4"]),
        ("/checkpoints", "uuid", ["c4", "c3", "u", "c2", "c1", "c0"]),
        ("/flows/f/runs", "id", ["r", "r4", "r3", "r2", "r1", "r0"]),
    ],
)
async def test_every_list_that_may_be_long_comes_in_pages(
    app: FastAPI, services: Services, store: Store, path: str, key: str, expected: list[object]
) -> None:
    _fill(services, store)
    found, cursor = [], None
    for _ in range(4):
        query = {"limit": 2, **({"cursor": cursor} if cursor is not None else {})}
        reply = await ask(app, "GET", f"/api/v1{path}", params=query)
        assert len(reply.json()) <= 2
        found += [one[key] for one in reply.json()]
        cursor = reply.headers.get("x-next-cursor")
        if cursor is None:
            break
    assert found == expected


@pytest.mark.parametrize("path", ["/experiments", "/checkpoints", "/flows/f/runs", "/trials/1/metrics"])
@pytest.mark.parametrize("cursor", ["x", "nan:u", "1e999:u"])
async def test_what_is_no_cursor_is_one_sentence(
    app: FastAPI, services: Services, store: Store, path: str, cursor: str
) -> None:
    _fill(services, store)
    reply = await ask(app, "GET", f"/api/v1{path}", params={"cursor": cursor})
    assert (reply.status_code, reply.json()["kind"]) == (400, "InputError")
    assert "invalid cursor" in reply.json()["message"]


async def test_a_stored_name_that_cannot_be_shown_hides_no_metrics(
    app: FastAPI, services: Services, store: Store
) -> None:
    """A group with a control character, stored by an older version, made all metrics of its trial a server error."""
    _prepare(services, store)
    row = {"trial_id": 1, "batches": 1, "metrics": {}, "time_s": 1.0}
    with store.writing() as session:
        session.add_all([MetricTable(group=group, **row) for group in ("a\r\nSet-Cookie: x", "fine")])
    reply = await ask(app, "GET", "/api/v1/trials/1/metrics")
    assert {one["group"] for one in reply.json()} == {"a\ufffd\ufffdSet-Cookie: x", "fine"}


@pytest.mark.parametrize("name", ["запуск", "100%25", "a:b c"])
async def test_a_name_that_no_header_can_hold_pages_all_the_same(
    app: FastAPI, services: Services, store: Store, name: str
) -> None:
    """A name that is not Latin-1 was a server error."""
    _prepare(services, store)
    row = {"trial_id": 1, "batches": 1, "metrics": {}, "time_s": 1.0}
    with store.writing() as session:
        session.add_all([MetricTable(group=group, **row) for group in (name, f"{name}2")])
    first = await ask(app, "GET", "/api/v1/trials/1/metrics?limit=1")
    assert first.status_code == 200
    cursor = first.headers["x-next-cursor"]
    assert cursor.isascii()
    assert cursor.isprintable()
    second = await ask(app, "GET", "/api/v1/trials/1/metrics", params={"limit": 1, "cursor": cursor})
    assert [one["group"] for one in first.json() + second.json()] == [name, f"{name}2"]


@pytest.mark.parametrize("path", ["/trek/api/v1/experiments", "/api/v1/experiments"])
async def test_a_proxy_may_take_the_prefix_off_or_leave_it(app: FastAPI, path: str) -> None:
    assert (await ask(UnderPrefix(app, prefix="/trek"), "GET", path)).status_code == 200


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
