"""Routes of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from fastapi import APIRouter, Depends, Response
from fastapi.responses import StreamingResponse

from trek.client import models
from trek.control.checkpoints.lent_folder import LentFolder
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.paging import Cursor, Limit, read_pair, tell_next


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read and download, owners delete."""
    router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])
    viewer = [Depends(auth.at_least("viewer"))]

    @router.get("", dependencies=viewer)
    def list_checkpoints(
        response: Response,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        limit: Limit = 1000,
        cursor: Cursor = None,
    ) -> list[models.CheckpointRecord]:
        """Those that are still stored, the newest first."""
        found = services.checkpoints.all(
            experiment_id=experiment_id, trial_id=trial_id, limit=limit, before=read_pair(cursor)
        )
        tell_next(response, found, limit=limit, cursor=lambda one: f"{one.time_s!r}:{one.uuid}")
        return found

    @router.get("/{uuid}", dependencies=viewer)
    def get_checkpoint(uuid: str) -> models.CheckpointRecord:
        return services.checkpoints.get(uuid)

    @router.get("/{uuid}/files", response_class=StreamingResponse, dependencies=viewer)
    def get_files(uuid: str) -> StreamingResponse:
        stack = ExitStack()
        folder = stack.enter_context(
            services.checkpoints.folder(uuid)
        )  # before the answer begins: a missing one is a 404
        return tar_answer(folder, stack)

    @router.delete("/{uuid}", dependencies=[Depends(auth.owner_of_checkpoint)])
    def delete_checkpoint(uuid: str) -> models.CheckpointRecord:
        return services.checkpoints.delete(uuid)

    return router


def tar_answer(folder: LentFolder, stack: ExitStack, *, only: str | None = None) -> StreamingResponse:
    """The files of `folder` as a tar; `stack` is closed when they are sent, or when the client disconnects."""
    return StreamingResponse(_closing(stack, folder.tar(only=only)), media_type="application/x-tar")


def _closing(stack: ExitStack, parts: Iterator[bytes]) -> Iterator[bytes]:
    with stack:
        yield from parts
