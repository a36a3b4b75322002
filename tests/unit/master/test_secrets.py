"""Secrets of a config reach its trials and nobody else: not by any GET, not by a fork, not by a template."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trek.client import models
from trek.client.flow_models import FlowRunDetails, FlowStep
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import (
    ArchiveTable,
    CheckpointTable,
    ExperimentRow,
    LogTable,
    ModelRow,
    ModelVersionRow,
    TemplateRow,
    TrialRow,
)
from trek.experiments.config import ExperimentConfig
from trek.experiments.masking import MASK

Asker = Callable[..., Any]
MakeToken = Callable[[str, models.Role], str]
BASE: dict[str, Any] = {
    "entrypoint": "a:B",
    "searcher": {"name": "single", "metric": "m", "max_length": 1},
}
ARCHIVE = "0" * 64


def _config(secret: str, key: str) -> dict[str, Any]:
    return {
        **BASE,
        "description": f"see https://ann:{quote(secret, safe='')}@host/x",
        "hyperparameters": {key: {"type": "const", "val": secret}, "nested": {"list": [{key: secret}]}},
        "data": {"url": f"https://ann:{quote(secret, safe='')}@host/x", "headers": {"Authorization": secret}},
        "environment": {"environment_variables": {"DB_PASSWORD": secret}},
    }


def _fill(services: Services, store: Store, secret: str, key: str) -> None:
    """Experiment 1 with a trial that wrote its secrets everywhere, and one of everything else that can hold them."""
    config = ExperimentConfig.parse(_config(secret, key)).normal_form()
    told = f"connecting with {secret!r} failed: {secret}"
    diff = f'+  {key}: "{secret}"\n+ other = 1'
    provenance = {"git": {"diff": f"+{secret}\n{diff}", "commit": "c"}, "packages": {"secretstorage": "3.3"}}
    with store.writing() as session:
        for table in (TemplateRow, ModelVersionRow, ModelRow, ArchiveTable, ExperimentRow):
            session.query(table).delete()
        base = {"name": "x", "owner": "ed", "archive": ARCHIVE, "created_s": 1.0, "state": "completed"}
        session.add(ExperimentRow(id=1, config=config, error=told, provenance=provenance, best_trial=1, **base))
        session.flush()
        hparams = {key: secret, "nested": {"list": [{key: secret}]}}
        trial = {"experiment_id": 1, "key": 0, "state": "completed", "seed": 0, "length": 1, "created_s": 1.0}
        session.add(TrialRow(id=1, hparams=hparams, error=told, traceback=f"  x({secret!r})\n{told}", **trial))
        session.flush()
        line = {"trial_id": 1, "run": 1, "rank": 0, "time_s": 1.0}
        session.add(LogTable(position=1, text=f"using {secret}", **line))
        session.add(LogTable(position=2, text=f"https://ann:{secret}@host", **line))
        path = f"nosuch://ann:{quote(secret, safe='')}@bucket/u"
        session.add(CheckpointTable(uuid="u", trial_id=1, batches=1, path=path, num_bytes=0, time_s=1.0))
        session.add(ModelRow(id=1, name="n", owner="ed", created_s=1.0))
        session.add(TemplateRow(name="n", config={"data": {key: secret}}, owner="ed", created_s=1.0))
        session.flush()
        session.add(ModelVersionRow(model_id=1, number=1, checkpoint="u", created_s=1.0))
    steps = [FlowStep(name="s", state="failed", error=told, reason=told)]
    run = FlowRunDetails(id="r", flow="f", state="failed", started_s=1.0, params={key: secret}, steps=steps)
    services.flows.save("f", "r", run, owner="ed")


def _get_paths(app: FastAPI) -> Iterator[str]:
    values = {"experiment_id": "1", "trial_id": "1", "uuid": "u", "sha256": ARCHIVE, "name": "n", "token_id": "1"}
    values |= {"flow": "f", "run": "r"}
    for path, methods in app.openapi()["paths"].items():
        if "get" in methods:
            query = {"log": "?step=s", "file": "?name=n"}.get(path.rpartition("/")[2], "")
            yield path.format(**values) + query


async def _answers(app: FastAPI, paths: list[str], token: str) -> dict[str, str]:
    """The texts of the answers; the first event of streams."""
    found = {path: await _first_part(app, path, token) for path in paths if path.endswith("/events")}
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers) as client:
        for path in paths:
            if path not in found:
                answer = await client.get(path)
                assert answer.status_code in (200, 400, 403, 404, 507), path
                found[path] = answer.text
    return found


async def _first_part(app: FastAPI, path: str, token: str) -> str:
    """Listen until something is sent, and hang up then."""
    is_sent, sent = asyncio.Event(), []
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await is_sent.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            sent.append(message["body"])
            is_sent.set()

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": path, "root_path": "", "scheme": "http"}
    headers = [(b"authorization", f"Bearer {token}".encode())]
    more = {"query_string": b"", "raw_path": path.encode(), "headers": headers, "asgi": {"spec_version": "2.3"}}
    await app({**scope, **more}, receive, send)
    return b"".join(sent).decode()


_SECRETS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="*"), max_size=30).map(
    lambda text: f"zQ7j#{text}Qz"
)
_KEYS = ["api_key", "api-key", "Authorization", "passphrase", "pwd", "hf_token", "client_secret", "private_key"]


def test_no_answer_to_a_viewer_holds_a_secret(
    services: Services, store: Store, app: FastAPI, make_token: MakeToken
) -> None:
    """Errors, tracebacks, logs, provenance, lists, templates and flows used to show some of them."""
    token, paths = make_token("vic", "viewer"), list(_get_paths(app))
    assert len(paths) > 20

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(secret=_SECRETS, key=st.sampled_from(_KEYS))
    def ask_everything(secret: str, key: str) -> None:
        _fill(services, store, secret, key)
        answers = asyncio.run(_answers(app, paths, token))
        for path, text in answers.items():
            for form in (secret, repr(secret)[1:-1], quote(secret, safe="")):
                assert form not in text, path
        shown = {path for path, text in answers.items() if MASK in text}
        assert {"/api/v1/experiments/1", "/api/v1/trials/1/logs", "/api/v1/templates/n", "/api/v1/events"} <= shown

    ask_everything()


@pytest.mark.anyio
async def test_trials_get_their_secrets_and_packages_are_not_mistaken_for_some(
    services: Services, store: Store
) -> None:
    _fill(services, store, "hunter2-of-ed", "api_key")
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = "running"
    assert services.trials.assignment(1, run=0).hparams["api_key"] == "hunter2-of-ed"
    assert services.experiments.get(1).provenance["packages"] == {"secretstorage": "3.3"}


@pytest.mark.anyio
async def test_a_fork_of_anothers_experiment_gets_no_secret_of_it(
    services: Services, store: Store, ask: Asker, make_token: MakeToken
) -> None:
    """An editor used to read another's secrets by forking with an entrypoint that prints them."""
    eve, ed, ann = make_token("eve", "editor"), make_token("ed", "editor"), make_token("ann", "admin")
    _fill(services, store, "hunter2-of-ed", "api_key")
    with store.writing() as session:
        row = session.get_one(ExperimentRow, 1)
        secret = {"environment": {"environment_variables": {"DB_PASSWORD": "hunter2-of-ed"}}}
        row.config = ExperimentConfig.parse({**BASE, **secret}).normal_form()
    path, changes = "/api/v1/experiments/1/fork", {"entrypoint": ["env"]}
    refused = await ask("POST", path, token=eve, json={"changes": changes})
    assert refused.status_code == 400
    assert refused.json()["kind"] == "ConfigError"
    assert "environment.environment_variables.DB_PASSWORD" in refused.json()["message"]
    own = {**changes, "environment.environment_variables.DB_PASSWORD": "of-eve"}
    assert (await ask("POST", path, token=eve, json={"changes": own})).status_code == 201
    for token, known in ((ed, "hunter2-of-ed"), (ann, "hunter2-of-ed")):
        made = await ask("POST", path, token=token, json={"changes": changes})
        assert made.status_code == 201
        with store.reading() as session:
            stored = session.get_one(ExperimentRow, made.json()["id"]).config
        assert stored["environment"]["environment_variables"]["DB_PASSWORD"] == known


@pytest.mark.anyio
async def test_a_template_shows_its_secrets_to_its_owner_alone(
    services: Services, ask: Asker, make_token: MakeToken
) -> None:
    """Any editor used to read them."""
    tokens = {name: make_token(name, role) for name, role in (("ed", "editor"), ("eve", "editor"), ("vic", "viewer"))}  # type: ignore[arg-type]
    config = {"data": {"api_key": "hunter2"}}
    await ask("POST", "/api/v1/templates", token=tokens["ed"], json={"name": "t", "config": config})
    for name, token in tokens.items():
        found = (await ask("GET", "/api/v1/templates/t", token=token)).json()["config"]
        assert (found == config) is (name == "ed")
    assert (await ask("GET", "/api/v1/templates/t")).json()["config"] == config, "an admin"


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/api/v1/experiments", "/api/v1/templates"])
async def test_a_masked_value_is_never_stored(services: Services, store: Store, ask: Asker, path: str) -> None:
    with store.writing() as session:
        session.add(ArchiveTable(sha256=ARCHIVE, num_bytes=0, num_files=0, created_s=1.0))
    config = {**BASE, "data": {"api_key": MASK}}
    reply = await ask("POST", path, json={"name": "t", "config": config, "archive": ARCHIVE})
    assert reply.status_code == 400
    assert "data.api_key" in reply.json()["message"]


@pytest.mark.anyio
async def test_viewers_do_not_download_code(services: Services, ask: Asker, make_token: MakeToken) -> None:
    """`experiment download` gave viewers the config file in the model folder, with its secrets."""
    path = f"/api/v1/archives/{ARCHIVE}"
    assert (await ask("GET", path, token=make_token("vic", "viewer"))).status_code == 403
    assert (await ask("GET", path, token=make_token("ed", "editor"))).status_code == 400, "it does not exist"
