"""Whatever the OpenAPI allows to be asked, and what it does not, gets an answer that is no server error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from trek.client import models
from trek.control.accounts import Accounts
from trek.control.layout import Layout
from trek.control.registry import Registry
from trek.control.services import Services
from trek.control.store import Store
from trek.control.supervisor import Supervisor
from trek.engines.local import LocalEngine
from trek.experiments.package import pack
from trek.master.app import make_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

    schemathesis = pytest.importorskip("schemathesis")

TOKEN = {"authorization": "Bearer t0ken"}
SENT = {"method", "url", "cookies", "headers", "params", "json", "data", "files"}
ENDLESS = "/events"
"""Streams stay open for as long as they are listened to."""
CONFIG = {"entrypoint": "model_def:T", "searcher": {"name": "single", "metric": "e", "max_length": 1}}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    """A control plane with one experiment, which never runs."""
    store, layout = Store.at(tmp_path / "home"), Layout(tmp_path / "home")
    supervisor = Supervisor(store, layout=layout, engine=LocalEngine(), slots=1, environment=lambda trial, run: {})
    services = Services(store, layout=layout, supervisor=supervisor)
    model = tmp_path / "model"
    model.mkdir()
    (model / "model_def.py").write_text("class T: ...")
    package = pack(model)
    services.archives.put(package.data, sha256=package.sha256)
    services.create_experiment(models.CreateExperiment(config=CONFIG, archive=package.sha256))
    yield make_app(services, Accounts(store), Registry(store), token="t0ken", stop=lambda kill: None)
    store.close()


def _ask_everything(app: FastAPI, *, max_examples: int) -> None:
    schema = schemathesis.openapi.from_dict(app.openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 30
    with TestClient(app, raise_server_exceptions=False) as client:
        for operation in operations:
            if ENDLESS not in operation.path:
                _ask(client, operation, max_examples=max_examples)


def _ask(client: TestClient, operation: Any, *, max_examples: int) -> None:
    @seed(0)
    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.data())
    def ask(data: Any) -> None:
        case = data.draw(operation.as_strategy())
        request = case.as_transport_kwargs(base_url="http://testserver", headers=TOKEN)
        answer = client.request(**{name: value for name, value in request.items() if name in SENT})
        assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.text}"

    ask()


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_can_be_asked_is_a_server_error(app: FastAPI) -> None:
    _ask_everything(app, max_examples=10)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
def test_nothing_that_can_be_asked_at_length_is_a_server_error(app: FastAPI) -> None:
    _ask_everything(app, max_examples=100)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [2**31, 2**63, 10**30, -(10**30)])
def test_a_number_that_no_row_can_have_names_nothing(app: FastAPI, number: int) -> None:
    client = TestClient(app, raise_server_exceptions=False)
    for path in (
        f"/experiments/{number}",
        f"/trials/{number}",
        f"/trials/{number}/metrics",
        f"/experiments/1/logs?after={number}",
        f"/experiments?before={number}",
        f"/checkpoints?trial_id={number}",
    ):
        assert client.get(f"/api/v1{path}", headers=TOKEN).status_code < 500, path
