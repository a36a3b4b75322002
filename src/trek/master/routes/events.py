"""Server-sent events: the state of experiments as it changes, without polling."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from trek.client.models import ENDED
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.change_feed import ChangeFeed
from trek.master.event_topics import EventTopics, Look

CHECK_S = 1.0
"""How often a stream makes sure that it may go on."""
KEEP_ALIVE_CHECKS = 15

IsOpen = Callable[[], Awaitable[bool]]


def make_router(
    services: Services,
    auth: Auth,
    *,
    is_stopping: Callable[[], bool],
    on_listening: Callable[[], None] = lambda: None,
    topics: EventTopics | None = None,
) -> APIRouter:
    """Viewers listen, until their token or role ends."""
    router = APIRouter(tags=["events"], dependencies=[Depends(auth.at_least("viewer"))])
    experiments = services.experiments
    topics = topics or EventTopics(version=experiments.version)
    changes = ChangeFeed(experiments.changes)

    def check_open(request: Request) -> IsOpen:
        async def is_open() -> bool:
            on_listening()
            return not is_stopping() and await auth.is_current(request)

        return is_open

    def stream(request: Request, key: Hashable, look: Look, *, name: str) -> StreamingResponse:
        topics.check_room()
        return _answer(_events(topics, key, look, name=name, is_open=check_open(request)))

    @router.get("/changes/events", response_class=StreamingResponse)
    async def follow_changes(request: Request) -> StreamingResponse:
        """What changed, by name, so that a page fetches it again; first what it missed since its last event."""
        changes.check_room()
        seen = request.headers.get("last-event-id", "")
        return _answer(changes.follow(seen, is_open=check_open(request)))

    @router.get("/experiments/{experiment_id}/events", response_class=StreamingResponse)
    async def follow_experiment(experiment_id: int, request: Request) -> StreamingResponse:
        def look() -> tuple[str, bool]:
            details = experiments.get(experiment_id)
            return details.model_dump_json(), details.state in ENDED

        await run_in_threadpool(experiments.owner, experiment_id)  # before the answer begins: an unknown id is a 404
        return stream(request, experiment_id, look, name="experiment")

    @router.get("/events", response_class=StreamingResponse)
    async def follow_all(request: Request) -> StreamingResponse:
        def look() -> tuple[str, bool]:
            return "[" + ",".join(one.model_dump_json() for one in experiments.all(limit=100)) + "]", False

        return stream(request, "all", look, name="experiments")

    return router


def _answer(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(topics: EventTopics, key: Hashable, look: Look, *, name: str, is_open: IsOpen) -> AsyncIterator[str]:
    seen, num_silent = 0, 0
    async with topics.listen(key, look) as topic:
        while await is_open():
            if topic.number != seen:
                seen, num_silent = topic.number, 0
                yield f"event: {name}\ndata: {topic.text}\n\n"
            elif topic.is_ended:
                return
            elif num_silent >= KEEP_ALIVE_CHECKS:
                num_silent = 0
                yield ": keep-alive\n\n"
            await topic.wait(seen=seen, timeout_s=CHECK_S)
            num_silent += 1
