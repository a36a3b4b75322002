"""Routes of artifacts: files of a user's own that trials keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth
from trek.train.artifacts import MAX_BYTES, OTHER_CONTENT, content_type

_PART_BYTES = 1 << 20
Name = Annotated[str, Query(max_length=200)]


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read; a trial's own processes write, as with checkpoints, and its owner adds what is made from it."""
    router = APIRouter(prefix="/trials/{trial_id}/artifacts", tags=["trials"])
    viewer, itself = [Depends(auth.at_least("viewer"))], [Depends(auth.trial_itself)]

    @router.get("", dependencies=viewer)
    def list_artifacts(trial_id: int) -> list[models.ArtifactRecord]:
        """Ordered by name."""
        return services.artifacts.all(trial_id)

    @router.get("/file", response_class=StreamingResponse, dependencies=viewer)
    def get_artifact(trial_id: int, name: Name) -> StreamingResponse:
        """Images are shown by browsers; everything else is a download, so that it never runs in this page's origin."""
        kind = content_type(name)
        shown = "attachment" if kind == OTHER_CONTENT else "inline"
        headers = {
            "content-disposition": f"{shown}; filename*=UTF-8''{quote(name.rpartition('/')[2])}",
            "x-content-type-options": "nosniff",
        }
        file = services.artifacts.open(trial_id, name)
        return StreamingResponse(_parts(file), media_type=kind, headers=headers)

    @router.put("", dependencies=itself)
    async def put_artifact(trial_id: int, name: Name, run: int, request: Request) -> models.ArtifactRecord:
        content = await request.body()
        return await run_in_threadpool(services.artifacts.put, trial_id, name, content, run=run)

    @router.put("/file", dependencies=[Depends(auth.owner_of_trial)])
    async def add_artifact(trial_id: int, name: Name, request: Request) -> models.ArtifactRecord:
        """Add a file that was made from a trial, which may have ended."""
        return await run_in_threadpool(services.artifacts.add, trial_id, name, await request.body())

    return router


def _parts(file: BinaryIO) -> Iterator[bytes]:
    with file:
        left = MAX_BYTES
        while left > 0 and (part := file.read(min(left, _PART_BYTES))):
            left -= len(part)
            yield part
