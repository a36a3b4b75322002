"""Whatever the OpenAPI allows to be asked, and what it does not, gets an answer that is no server error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from trek.client import models
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import TrialRow
from trek.experiments.package import pack
from trek.master.app import make_app
from trek.system.clock import SystemClock
from trek.testing.control_parts import QUICK_HASHER, open_store
from trek.testing.trial_runner import IdleRunner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis import GenerationMode

CHECKS = [
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]
TOKEN = {"authorization": "Bearer t0ken"}
SENT = {"method", "url", "cookies", "headers", "params", "json", "data", "files"}
ENDLESS = "/events"
"""Streams stay open for as long as they are listened to."""
CONFIG = {"entrypoint": "model_def:T", "searcher": {"name": "single", "metric": "e", "max_length": 1}}


@dataclass
class Served:
    """An application over a control plane that never runs anything."""

    app: FastAPI
    store: Store
    services: Services
    archive: str

    def something(self) -> dict[str, object]:
        """Make one of everything, and give what it is called in paths: most names one could guess lead nowhere."""
        request = models.CreateExperiment(config=CONFIG, archive=self.archive)
        experiment = self.services.experiments.create(request).id
        trial = self.services.experiments.get(experiment).trials[0].id
        with self.store.writing() as session:
            row = session.get_one(TrialRow, trial)
            row.state, row.run = "running", 1
        name, uuid = f"made-{trial}", f"uuid-{trial}"
        point = models.MetricPoint(group="validation", batches=1, metrics={"e": 1.0}, time_s=1.0)
        folder = self.services.trials.assignment(trial, run=1).checkpoint_dir
        kept = models.CheckpointReport(uuid=uuid, batches=1, path=f"{folder}/one", num_bytes=1, time_s=1.0)
        self.services.trials.report(trial, models.Report(run=1, metrics=[point], checkpoints=[kept]))
        self.services.models.create(models.CreateModel(name=name), owner="")
        self.services.templates.set(name, {}, owner="")
        return {"experiment_id": experiment, "trial_id": trial, "uuid": uuid, "name": name, "sha256": self.archive}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store, layout = open_store(tmp_path / "home"), Layout(tmp_path / "home")
    services = Services.over(store, layout=layout, runner=IdleRunner(), clock=SystemClock(), hasher=QUICK_HASHER)
    model = tmp_path / "model"
    model.mkdir()
    (model / "model_def.py").write_text("class T: ...")
    package = pack(model)
    services.archives.put(package.data, sha256=package.sha256)
    app = make_app(services, token="t0ken", stop=lambda kill: None)
    yield Served(app, store, services, package.sha256)
    store.close()


def _ask_everything(served: Served, *, max_examples: int) -> None:
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 30
    with TestClient(served.app, raise_server_exceptions=False) as client:
        for operation in operations:
            if ENDLESS not in operation.path:
                _ask(client, operation, served.something(), max_examples=max_examples)


def _ask(client: TestClient, operation: Any, known: dict[str, object], *, max_examples: int) -> None:
    sane = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    mad = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE) if _can_be_wrong(operation) else sane

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
        case = data.draw(st.one_of(sane, mad))
        if data.draw(st.booleans()):
            case.path_parameters.update({name: known[name] for name in case.path_parameters if name in known})
        request = case.as_transport_kwargs(base_url="http://testserver", headers=TOKEN)
        made_up = {name: value for name, value in request["headers"].items() if name.lower() != "authorization"}
        request["headers"] = {**made_up, **TOKEN}
        answer = client.request(**{name: value for name, value in request.items() if name in SENT})
        assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.text}"
        case.validate_response(answer, checks=CHECKS)

    ask()


def _can_be_wrong(operation: Any) -> bool:
    """Whether there is anything in the request that could be given wrongly."""
    return bool(list(operation.iter_parameters()) or operation.body)


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_can_be_asked_is_a_server_error(served: Served) -> None:
    _ask_everything(served, max_examples=5)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
def test_nothing_that_can_be_asked_at_length_is_a_server_error(served: Served) -> None:
    _ask_everything(served, max_examples=200)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [2**31, 2**63, 10**30, -(10**30)])
def test_a_number_that_no_row_can_have_names_nothing(served: Served, number: int) -> None:
    client = TestClient(served.app, raise_server_exceptions=False)
    for path in (
        f"/experiments/{number}",
        f"/trials/{number}",
        f"/trials/{number}/metrics",
        f"/experiments/1/logs?after={number}",
        f"/experiments?cursor={number}",
        f"/checkpoints?trial_id={number}",
    ):
        assert client.get(f"/api/v1{path}", headers=TOKEN).status_code < 500, path
