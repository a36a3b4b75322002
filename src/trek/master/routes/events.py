"""Server-sent events: the state of experiments as it changes, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from trek.client.models import ENDED
from trek.control.services import Services
from trek.master.auth import Auth

POLL_S = 0.5
KEEP_ALIVE_S = 15.0


def make_router(services: Services, auth: Auth, *, is_stopping: Callable[[], bool]) -> APIRouter:
    """Viewers listen."""
    router = APIRouter(tags=["events"], dependencies=[Depends(auth.at_least("viewer"))])

    @router.get("/experiments/{experiment_id}/events", response_class=StreamingResponse)
    async def follow_experiment(experiment_id: int, request: Request) -> StreamingResponse:
        def look() -> tuple[str, bool]:
            details = services.experiments.get(experiment_id)
            return details.model_dump_json(), details.state in ENDED

        await run_in_threadpool(look)  # before the answer begins: an unknown id is a 404
        return _stream(request, look, name="experiment", is_stopping=is_stopping)

    @router.get("/events", response_class=StreamingResponse)
    async def follow_all(request: Request) -> StreamingResponse:
        def look() -> tuple[str, bool]:
            found = services.experiments.all(limit=100)
            return "[" + ",".join(one.model_dump_json() for one in found) + "]", False

        return _stream(request, look, name="experiments", is_stopping=is_stopping)

    return router


def _stream(
    request: Request, look: Callable[[], tuple[str, bool]], *, name: str, is_stopping: Callable[[], bool]
) -> StreamingResponse:
    return StreamingResponse(
        _events(request, look, name=name, is_stopping=is_stopping),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def _events(
    request: Request, look: Callable[[], tuple[str, bool]], *, name: str, is_stopping: Callable[[], bool]
) -> AsyncIterator[str]:
    sent, silent_s = "", 0.0
    while not is_stopping() and not await request.is_disconnected():
        text, is_last = await run_in_threadpool(look)
        if text != sent:
            sent, silent_s = text, 0.0
            yield f"event: {name}\ndata: {text}\n\n"
        if is_last:
            return
        await asyncio.sleep(POLL_S)
        silent_s += POLL_S
        if silent_s >= KEEP_ALIVE_S:
            silent_s = 0.0
            yield ": keep-alive\n\n"
