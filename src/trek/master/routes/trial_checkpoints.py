"""Routes by which the processes of a trial store and fetch its checkpoints, where they share no disk with this one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import IO, cast

from anyio import from_thread
from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth
from trek.master.routes.checkpoints import tar_answer


class _Body:
    """The body of a request as a file to read on a thread, part by part as it arrives."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end."""
        while not self._rest:
            part = from_thread.run(self._next)
            if part is None:
                return b""
            self._rest = part
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    async def _next(self) -> bytes | None:
        return await anext(self._parts, None)


def make_router(services: Services, auth: Auth) -> APIRouter:
    """For a trial's own processes alone; users have `/checkpoints`."""
    router = APIRouter(prefix="/trials/{trial_id}", tags=["trials"], dependencies=[Depends(auth.trial_itself)])

    @router.get("/checkpoints")
    def list_own_checkpoints(trial_id: int, run: int) -> list[str]:
        """The names of the trial's complete checkpoints."""
        return services.trial_checkpoints.names(trial_id, run=run)

    @router.put("/checkpoints/{name}")
    async def store_checkpoint(trial_id: int, name: str, run: int, request: Request) -> models.StoredCheckpoint:
        """The body is a tar of the checkpoint's files: stored whole, if it matches its manifest, or not at all."""
        body = cast("IO[bytes]", _Body(request.stream()))
        path = await run_in_threadpool(services.trial_checkpoints.receive, trial_id, name, body, run=run)
        return models.StoredCheckpoint(path=path)

    @router.get("/checkpoints/{name}/files", response_class=StreamingResponse)
    def get_own_files(trial_id: int, name: str, run: int, only: str | None = None) -> StreamingResponse:
        """A tar of the checkpoint's files, or of the one called `only`."""
        stack = ExitStack()
        folder = stack.enter_context(services.trial_checkpoints.folder(trial_id, name, run=run))
        return tar_answer(folder, stack, only=only)

    @router.get("/start-checkpoint/files", response_class=StreamingResponse)
    def get_start_files(trial_id: int, run: int) -> StreamingResponse:
        """A tar of the checkpoint that the trial starts from."""
        stack = ExitStack()
        return tar_answer(stack.enter_context(services.trial_checkpoints.start_folder(trial_id, run=run)), stack)

    return router
