"""Whatever is sent, nothing is a server error, and what is stored never hides the rest of a list."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from sqlalchemy import update

from trek.client import models
from trek.client.flow_models import SaveFlowRun
from trek.client.wire_values import JsonObject
from trek.control.flows.flow_tables import FlowRunRow
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TemplateRow, TrialRow
from trek.experiments.package import pack
from trek.master.app import make_app
from trek.system.clock import SystemClock
from trek.testing.control_parts import QUICK_HASHER, open_store
from trek.testing.trial_runner import IdleRunner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

HEADERS = {"authorization": "Bearer t0ken", "content-type": "application/json"}
CONFIG = {"entrypoint": "model_def:T", "searcher": {"name": "single", "metric": "e", "max_length": 1}}
LISTS = ("/experiments", "/experiments/1", "/experiments/1/trials", "/trials/1/metrics", "/checkpoints", "/jobs",
         "/models", "/templates", "/flows", "/flows/f/runs", "/users", "/tokens")  # fmt: skip
"""Everything that shows rows which others wrote."""
STREAMS = "/events"
NASTY = [
    '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"a\\nb"', '"\\u001b[31mred"', '"\\u202e"', '""', '" "', '"x"',
    '"' + "x" * 5000 + '"', "9" * 400, "9" * 5000, "-1", "0", "NaN", "Infinity", "-Infinity", "1e400", "1e-320",
    "null", "true", "[]", "{}", '{"\\ud800": 1}', '{"": {"": ""}}', '["\\ud800"]', "[[[[]]]]",
    '{"a":' * 300 + "1" + "}" * 300, '{"a":' * 900 + "1" + "}" * 900, "[" * 2000 + "]" * 2000, "[" * 100_000,
]  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[FastAPI, Services, Store, str]]:
    store = open_store(tmp_path / "home")
    services = Services.over(
        store, layout=Layout(tmp_path / "home"), runner=IdleRunner(), clock=SystemClock(), hasher=QUICK_HASHER
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model_def.py").write_text("class T: ...")
    package = pack(tmp_path / "model")
    services.archives.put(package.data, sha256=package.sha256)
    yield make_app(services, token="t0ken", stop=lambda kill: None), services, store, package.sha256
    store.close()


@pytest.fixture
def client(served: tuple[FastAPI, Services, Store, str]) -> Iterator[TestClient]:
    app, services, store, archive = served
    services.experiments.create(models.CreateExperiment(config=CONFIG, archive=archive))
    with store.writing() as session:
        row = session.get_one(TrialRow, 1)
        row.state, row.run = "running", 1
    run = SaveFlowRun(id="r", flow="f", state="done", started_s=1.0)
    services.flows.save("f", "r", run, owner="")
    with TestClient(app, raise_server_exceptions=False, headers=HEADERS, base_url="http://t/api/v1") as client:
        yield client


def routes(app: FastAPI, *methods: str) -> list[APIRoute]:
    from tests.unit.master.test_app import all_routes

    found = [route for route in all_routes(app.routes) if isinstance(route, APIRoute)]
    return [route for route in found if route.methods & set(methods) and STREAMS not in route.path]


def address(route: APIRoute, *, value: str | bytes | None = None) -> str:
    """The route's path with things that exist, or with `value` for everything that is text."""
    known = {"experiment_id": "1", "trial_id": "1", "flow": "f", "run": "r", "name": "x", "sha256": "0" * 64}
    texts = {parameter.name for parameter in route.dependant.path_params if parameter.field_info.annotation is str}
    path = route.path.removeprefix("/api/v1")
    for parameter in route.dependant.path_params:
        chosen = value if value is not None and parameter.name in texts else known.get(parameter.name, "1")
        path = path.replace(f"{{{parameter.name}}}", quote(chosen, safe=""))
    return path


def bodies(app: FastAPI) -> list[tuple[APIRoute, type[BaseModel]]]:
    found = routes(app, "POST", "PUT", "PATCH")
    return [(route, route.body_field.field_info.annotation) for route in found if route.body_field is not None]


SANE = {
    "id": '"r"', "flow": '"f"', "state": '"done"', "started_s": "1", "name": '"x"', "password": '"longenough"',
    "config": json.dumps(CONFIG), "run": "1", "checkpoint": '"c"', "slots": "1", "role": '"viewer"',
    "metrics": '[{"group":"validation","batches":1,"metrics":{"e":1},"time_s":1}]',
}  # fmt: skip


def test_no_nasty_body_is_a_server_error_or_hides_a_list(
    served: tuple[FastAPI, Services, Store, str], client: TestClient
) -> None:
    # A label or a parameter that was stored made every later list a server error.
    app, archive = served[0], served[3]
    sane = {**SANE, "archive": json.dumps(archive)}
    found = bodies(app)
    assert len(found) >= 10

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.data())
    def send(data: Any) -> None:
        route, model = data.draw(st.sampled_from(found))
        target = data.draw(st.sampled_from(sorted(model.model_fields)))
        value = data.draw(st.sampled_from(NASTY))
        wrapped = data.draw(st.sampled_from(["{}", "[{}]", '{{"a": {}}}', "[[{}]]"])).format(value)
        parts = {name: text for name, text in sane.items() if name in model.model_fields} | {target: wrapped}
        body = "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"
        method = next(iter(route.methods))
        answer = client.request(method, address(route), content=body)
        assert answer.status_code < 500, (method, route.path, target, wrapped[:80], answer.text[:300])
        for path in LISTS:
            assert client.get(path).status_code in (200, 404), (path, route.path, target, wrapped[:80])

    send()


@pytest.mark.parametrize("value", NASTY)
def test_a_nasty_value_in_any_field_of_a_body_is_no_server_error(
    served: tuple[FastAPI, Services, Store, str], client: TestClient, value: str
) -> None:
    for route, model in bodies(served[0]):
        method = next(iter(route.methods))
        for name, field in model.model_fields.items():
            text = _in_place(value, field.annotation)
            parts = {k: v for k, v in SANE.items() if k in model.model_fields} | {name: text}
            body = "{" + ",".join(f'"{key}":{part}' for key, part in parts.items()) + "}"
            answer = client.request(method, address(route), content=body)
            assert answer.status_code < 500, (method, route.path, name, text[:80], answer.text[:200])
    for path in LISTS:
        assert client.get(path).status_code in (200, 404), path


def _in_place(value: str, annotation: Any) -> str:
    """`value` where the field holds text: in its list or mapping, if it is one."""
    kinds = {get_origin(one) for one in (annotation, *get_args(annotation))}
    return f"[{value}]" if list in kinds else f'{{"a":{value}}}' if dict in kinds else value


NASTY_WORDS = [
    "\x00", "\x1b[2J", "a\r\nb: c", "запуск", "\u202e", "🚀", "nan", "inf", "-1", "9" * 400, "१२", "1e308:\x00",
    "1e300:x", "%", "%ff", "%_\\'\"", "../..", ".", "", " ", "x" * 3000, "' OR 1=1 --", b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("word", NASTY_WORDS)
def test_a_nasty_word_in_any_path_or_query_is_no_server_error(
    served: tuple[FastAPI, Services, Store, str], client: TestClient, word: str | bytes
) -> None:
    for route in routes(served[0], "GET", "DELETE"):
        method = next(iter(route.methods & {"GET", "DELETE"}))
        base, encoded = address(route, value=word or "x"), quote(word)
        names = [parameter.alias for parameter in _query_parameters(route)]
        for query in ("", *(f"?{name}={encoded}" for name in names)):
            answer = client.request(method, f"{base}{query}")
            assert answer.status_code < 500, (method, base, query, answer.text[:200])


def _query_parameters(route: APIRoute) -> list[Any]:
    waiting, found = [route.dependant], []
    while waiting:
        one = waiting.pop()
        found += one.query_params
        waiting += one.dependencies
    return found


NASTY_HEADERS = [b"\xff\xfe", b"Bearer \xff", b"", b"\x7f", "Bearer ключ".encode(), b"," * 5000]


@pytest.mark.parametrize("header", ["authorization", "if-none-match", "content-type", "last-event-id", "cookie"])
def test_a_nasty_header_is_no_server_error(client: TestClient, header: str) -> None:
    requests = (("GET", "/experiments", b""), ("POST", "/templates", b"{}"), ("POST", "/login", b"{}"))
    for value, (method, path, content) in itertools.product(NASTY_HEADERS, requests):
        answer = client.request(method, path, headers=[(header.encode(), value)], content=content)
        assert answer.status_code < 500, (value[:80], method, path, answer.text)


# -- pages


def test_a_page_of_runs_with_any_name_leads_to_the_next(client: TestClient, served: Any) -> None:
    # A name beyond Latin-1 made the header a server error, and a line break in one split the answer.
    names = ["запуск", "a:b %41", "走る", "é"]
    for at, name in enumerate(names):
        run = SaveFlowRun(id=name, flow="поток", state="done", started_s=float(at))
        served[1].flows.save("поток", name, run, owner="")
    seen, cursor = [], None
    while True:
        query = {"limit": 1, **({"cursor": cursor} if cursor is not None else {})}
        answer = client.get(f"/flows/{quote('поток')}/runs", params=query)
        assert answer.status_code == 200
        seen += [run["id"] for run in answer.json()]
        cursor = answer.headers.get("x-next-cursor")
        if cursor is None:
            break
        assert cursor.isascii()
    assert seen == names[::-1]


def test_a_run_with_a_line_break_in_its_name_is_refused(client: TestClient) -> None:
    run = {"id": "r\r\nSet-Cookie: a=b", "flow": "f", "state": "done", "started_s": 1}
    answer = client.put(f"/flows/f/runs/{quote(run['id'], safe='')}", json=run)  # type: ignore[arg-type]
    assert answer.status_code == 422
    assert "must not contain the control character U+000D" in answer.json()["message"]


# -- rows of older versions


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "values",
    [
        {"labels": ["\ud800"]},
        {"config": {**CONFIG, "hyperparameters": deep(300)}},
        {"config": {**CONFIG, "hyperparameters": deep(900)}},
        {"config": {}},
        {"config": {**CONFIG, "hyperparameters": {"x": {"type": "integer", "minval": 1, "maxval": 2}}}},
        {"provenance": {"x": "\ud800"}},
        {"labels": {"not": "a list"}},
    ],
)
def test_an_experiment_that_cannot_be_shown_hides_no_other_and_can_be_deleted(
    served: Any, client: TestClient, values: dict[str, Any]
) -> None:
    _, services, store, archive = served
    other = services.experiments.create(models.CreateExperiment(config=CONFIG, archive=archive)).id
    with store.writing() as session:
        session.execute(update(ExperimentRow).where(ExperimentRow.id == 1).values(**values))
        session.execute(update(TrialRow).where(TrialRow.id == 1).values(state="queued"))
    listed = {one["id"]: one for one in client.get("/experiments").json()}
    assert listed.keys() == {1, other}
    details = client.get("/experiments/1")
    assert details.status_code == 200
    for path in (*LISTS, "/trials/1", f"/experiments/{other}"):
        assert client.get(path).status_code in (200, 404), path
    told = details.json()["error"] + "".join(trial["error"] for trial in details.json()["trials"])
    assert "cannot be shown" in told
    assert client.post("/experiments/1/kill").status_code == 200
    assert client.delete("/experiments/1").status_code == 204
    assert [one["id"] for one in client.get("/experiments").json()] == [other]


@pytest.mark.parametrize("config", [deep(900), {"x": "\ud800"}])
def test_a_template_that_cannot_be_shown_hides_no_other_and_can_be_deleted(
    served: Any, client: TestClient, config: Any
) -> None:
    _, services, store, _ = served
    services.templates.set("fine", {}, owner="")
    with store.writing() as session:
        session.add(TemplateRow(name="bad", config=config, owner="ed", created_s=1.0))
    listed = {one["name"]: one["error"] for one in client.get("/templates").json()}
    assert listed["fine"] == ""
    assert "cannot be shown" in listed["bad"]
    assert client.get("/templates/bad").status_code == 200
    assert client.post("/templates", json={"name": "another", "config": {}}).status_code == 201
    assert client.delete("/templates/bad").status_code == 204


def test_a_run_of_a_flow_that_cannot_be_shown_hides_no_other(served: Any, client: TestClient) -> None:
    with served[2].writing() as session:
        session.execute(update(FlowRunRow).values(params=deep(900)))
    served[1].flows.save("g", "r", SaveFlowRun(id="r", flow="g", state="done", started_s=1.0), owner="")
    assert {one["name"] for one in client.get("/flows").json()} == {"f", "g"}
    assert "cannot be shown" in client.get("/flows/f/runs").json()[0]["error"]
    assert client.get("/flows/f/runs/r").status_code == 200


# -- the models of requests


def test_every_text_of_a_request_is_of_a_checked_type(served: Any) -> None:
    """A bare `str`, or `dict[str, Any]`, in the body of a request lets anything in."""
    bare = []
    for _, model in bodies(served[0]):
        bare += [f"{model.__name__}.{name}" for name in _bare_fields(model)]
    assert bare == []


def _bare_fields(model: type[BaseModel]) -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        metadata = [*field.metadata]
        if _is_bare(field.annotation, metadata):
            found.append(name)
    return found


def _is_bare(annotation: Any, metadata: list[Any]) -> bool:
    if annotation is str:
        return not metadata
    if annotation is Any:
        return not metadata
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return bool(_bare_fields(annotation))
    if hasattr(annotation, "__metadata__"):
        return False
    if get_origin(annotation) is dict and metadata:
        return False
    if str(get_origin(annotation)) == "typing.Literal":
        return False
    return any(_is_bare(inner, []) for inner in get_args(annotation))


def test_the_types_of_requests_are_told_apart_from_bare_ones() -> None:
    class Body(BaseModel):
        bare: str = ""
        values: dict[str, Any] = {}
        inner: list[str] | None = None
        good: JsonObject = {}

    assert _bare_fields(Body) == ["bare", "values", "inner"]
