"""Event streams: one look for all who listen, and an end when the rights of the listener end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI

from trek.client import models
from trek.control.services import Services
from trek.control.store import Store
from trek.control.tables import ExperimentRow
from trek.errors import NotFound, TooManyRequests
from trek.experiments.config import ExperimentConfig
from trek.master import event_topics
from trek.master.event_topics import EventTopics
from trek.master.routes import events

pytestmark = pytest.mark.anyio
Asker = Callable[..., Any]
MakeToken = Callable[[str, models.Role], str]
CONFIG = ExperimentConfig.parse(
    {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "m", "max_length": 1}}
).normal_form()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CHECK_S", 0.01)


def _add(store: Store, name: str, *, state: str = "running") -> int:
    with store.writing() as session:
        row = ExperimentRow(name=name, owner="ed", state=state, config=CONFIG, archive="0" * 64, created_s=1.0)
        session.add(row)
    return row.id


def _close(services: Services, token: str, how: str) -> None:
    accounts = services.accounts
    if how == "token revoked":
        accounts.revoke_token("vic", accounts.tokens("vic")[0].id)
    else:
        changes = {
            "user deactivated": models.ChangeUser(is_active=False),
            "role changed": models.ChangeUser(role="editor"),
            "password changed": models.ChangeUser(password="battery staple"),
        }
        accounts.change_user("vic", changes[how])


@pytest.mark.parametrize("how", ["token revoked", "user deactivated", "role changed", "password changed"])
@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/experiments/1/events"])
async def test_a_stream_ends_with_the_rights_of_its_listener(
    services: Services, store: Store, app: FastAPI, ask: Asker, make_token: MakeToken, how: str, path: str
) -> None:
    """Streams used to go on after the user was deactivated, and told of new experiments."""
    token = make_token("vic", "viewer")
    _add(store, "public")
    sent: list[bytes] = []
    is_sent = asyncio.Event()
    listening = asyncio.create_task(_listen(app, path, token, sent, is_sent))
    await is_sent.wait()
    _close(services, token, how)
    _add(store, "hidden")
    await listening
    assert b"public" in b"".join(sent)
    assert b"hidden" not in b"".join(sent)


async def _listen(app: FastAPI, path: str, token: str, sent: list[bytes], is_sent: asyncio.Event) -> None:
    """Listen until the application ends the stream."""
    waiting = asyncio.Event()
    is_asked = False

    async def receive() -> dict[str, Any]:
        nonlocal is_asked
        if is_asked:
            await waiting.wait()
        is_asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            sent.append(message["body"])
            is_sent.set()

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": path, "root_path": "", "scheme": "http"}
    headers = [(b"authorization", f"Bearer {token}".encode())]
    more = {"query_string": b"", "raw_path": path.encode(), "headers": headers, "asgi": {"spec_version": "2.3"}}
    await app({**scope, **more}, receive, send)


async def test_what_changes_is_looked_at_once_for_all_who_listen() -> None:
    """Each of 50 idle streams used to query everything twice a second."""
    version, looks = [0], []

    def look() -> tuple[str, bool]:
        looks.append(version[0])
        return str(version[0]), version[0] == 3

    topics = EventTopics(version=lambda: version[0], poll_s=0.001)

    found: list[list[str]] = [[] for _ in range(50)]

    async def listen(own: list[str]) -> None:
        async with topics.listen("all", look) as topic:
            while not topic.is_ended or topic.number != len(own):
                await topic.wait(seen=len(own), timeout_s=30)
                if topic.number != len(own):
                    own.append(topic.text)

    listeners = [asyncio.create_task(listen(own)) for own in found]
    for number in (1, 2, 3):
        while any(len(own) < number for own in found):
            await asyncio.sleep(0.001)
        version[0] = number
    await asyncio.gather(*listeners)
    assert looks == [0, 1, 2, 3]
    assert all(own == ["0", "1", "2", "3"] for own in found)
    assert topics.num_listeners == 0


async def test_a_topic_whose_subject_is_deleted_ends() -> None:
    def look() -> tuple[str, bool]:
        raise NotFound("it was deleted")

    async with EventTopics(version=lambda: 0).listen(1, look) as topic:
        await topic.wait(seen=0, timeout_s=30)
        assert topic.is_ended


async def test_streams_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_topics, "MAX_LISTENERS", 1)
    topics = EventTopics(version=lambda: 0)
    topics.check_room()
    async with topics.listen(1, lambda: ("", False)):
        with pytest.raises(TooManyRequests):
            topics.check_room()
    topics.check_room()


def test_only_what_is_committed_changes_the_version(services: Services, store: Store) -> None:
    before = services.experiments.version()
    services.experiments.all()
    with pytest.raises(RuntimeError), store.writing():
        raise RuntimeError
    assert services.experiments.version() == before
    _add(store, "new")
    assert services.experiments.version() > before
