"""The token of a trial's run: what it opens, and that it opens nothing once the run is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ArchiveTable, ExperimentRow, MetricTable, TrialRow
from trek.experiments.config import ExperimentConfig
from trek.testing.control_parts import open_store

pytestmark = pytest.mark.anyio
CONFIG = ExperimentConfig.parse(
    {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
).normal_form()
OWN, FOREIGN = "0" * 64, "1" * 64
VALUES = {"experiment_id": "1", "trial_id": "1", "uuid": "u", "sha256": OWN, "name": "n", "token_id": "9"} | {
    "flow": "f",
    "run": "r",
}
OPEN = {("/health", "get"), ("/api/v1/login", "post")}
OF_THE_TRIAL = {
    ("/api/v1/trials/{trial_id}/assignment", "get"),
    ("/api/v1/trials/{trial_id}/artifacts", "put"),
    ("/api/v1/trials/{trial_id}/checkpoints", "get"),
    ("/api/v1/trials/{trial_id}/checkpoints/{name}", "put"),
    ("/api/v1/trials/{trial_id}/checkpoints/{name}/files", "get"),
    ("/api/v1/trials/{trial_id}/start-checkpoint/files", "get"),
    ("/api/v1/trials/{trial_id}/reports", "post"),
    ("/api/v1/archives/{sha256}", "get"),
    ("/api/v1/archives/{sha256}/exists", "get"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    row = {"key": 0, "hparams": {}, "seed": 0, "length": 1, "created_s": 1.0}
    (tmp_path / "archives").mkdir()
    with made.writing() as session:
        for number, archive in ((1, OWN), (2, FOREIGN)):
            session.add(ExperimentRow(id=number, name="x", owner="ed", config=CONFIG, archive=archive, created_s=1.0))
            session.add(ArchiveTable(sha256=archive, num_bytes=1, num_files=1, created_s=1.0))
            (tmp_path / "archives" / f"{archive}.tar.gz").write_bytes(b"code")
            session.flush()
            session.add(TrialRow(id=number, experiment_id=number, state="running", run=2, **row))
    yield made
    made.close()


async def ask(app: FastAPI, token: str, method: str, path: str, **kwargs: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.request(method, path, headers=headers, **kwargs)


def report(run: int) -> dict[str, Any]:
    point = {"group": "validation", "batches": 5, "metrics": {"m": -1e9}, "time_s": 0.0}
    return {"run": run, "metrics": [point]}


async def test_a_token_opens_the_routes_of_its_trial_and_no_other(app: FastAPI, services: Services) -> None:
    """A trial's token also read the archives of other experiments."""
    token = services.accounts.trial_token(1, 2)
    opened = set()
    for path, item in app.openapi()["paths"].items():
        for method in item:
            reply = await ask(app, token, method, path.format(**VALUES), json={}, params={"run": 2})
            if reply.status_code not in (401, 403):
                opened.add((path, method))
    assert opened - OPEN == OF_THE_TRIAL


@pytest.mark.parametrize("path", ["/trials/2/assignment?run=2", f"/archives/{FOREIGN}", f"/archives/{FOREIGN}/exists"])
async def test_a_token_reads_nothing_of_another_trial(app: FastAPI, services: Services, path: str) -> None:
    """The archive of any experiment was readable for the token of any trial."""
    reply = await ask(app, services.accounts.trial_token(1, 2), "GET", f"/api/v1{path}")
    assert reply.status_code == 403, reply.text
    assert (await ask(app, services.accounts.trial_token(2, 2), "GET", f"/api/v1{path}")).status_code == 200


async def test_a_token_keeps_artifacts_of_its_own_trial_and_run_alone(app: FastAPI, services: Services) -> None:
    def put(token: str, trial: int, run: int) -> Any:
        params = {"name": "a.png", "run": run}
        return ask(app, token, "PUT", f"/api/v1/trials/{trial}/artifacts", params=params, content=b"x")

    before, own = services.accounts.trial_token(1, 1), services.accounts.trial_token(1, 2)
    assert (await put(own, 1, 2)).status_code == 200
    assert (await put(own, 2, 2)).status_code == 403
    assert (await put(before, 1, 2)).status_code == 403
    assert (await put(own, 1, 1)).status_code in (403, 409)


async def test_a_token_reports_for_its_own_trial_and_run_alone(app: FastAPI, services: Services, store: Store) -> None:
    """The token of run 1 reported as run 2, and changed the trial's best metric."""
    before, own = services.accounts.trial_token(1, 1), services.accounts.trial_token(1, 2)
    assert (await ask(app, before, "POST", "/api/v1/trials/1/reports", json=report(2))).status_code == 403
    assert (await ask(app, own, "POST", "/api/v1/trials/2/reports", json=report(2))).status_code == 403
    other_run = await ask(app, own, "POST", "/api/v1/trials/1/reports", json=report(1))
    assert other_run.json() == {"stop": "killed"}
    with store.reading() as session:
        assert not session.query(MetricTable).count()
    assert (await ask(app, own, "POST", "/api/v1/trials/1/reports", json=report(2))).json() == {"stop": ""}


def replaced(store: Store, services: Services) -> None:
    with store.writing() as session:
        session.get_one(TrialRow, 1).run = 3


def ended(store: Store, services: Services) -> None:
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = "completed"


def waiting(store: Store, services: Services) -> None:
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = "queued"


def deleted(store: Store, services: Services) -> None:
    with store.writing() as session:
        session.delete(session.get_one(TrialRow, 1))
        session.flush()
        session.delete(session.get_one(ExperimentRow, 1))


@pytest.mark.parametrize("happened", [replaced, ended, waiting, deleted])
@pytest.mark.parametrize(("path", "method"), sorted(OF_THE_TRIAL))
async def test_a_token_is_worth_nothing_once_its_run_is_over(
    app: FastAPI,
    services: Services,
    store: Store,
    happened: Callable[[Store, Services], None],
    path: str,
    method: str,
) -> None:
    """Tokens outlived their run, their trial and the deletion of their experiment."""
    token = services.accounts.trial_token(1, 2)
    happened(store, services)
    reply = await ask(app, token, method, path.format(**VALUES), json=report(2), params={"run": 2})
    assert (reply.status_code, reply.json()["kind"]) == (403, "RunEnded")
    assert "no longer valid" in reply.json()["message"]
