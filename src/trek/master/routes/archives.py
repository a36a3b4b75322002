"""Routes of archives: the model folders of experiments."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from trek.control.services import Services
from trek.errors import InputError
from trek.experiments.package import MAX_BYTES
from trek.master.auth import Auth


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Editors upload archives; users download them, and trials their own one."""
    router = APIRouter(prefix="/archives/{sha256}", tags=["archives"])
    reader, editor = [Depends(auth.reader_of_archive)], [Depends(auth.at_least("editor"))]

    @router.put("", status_code=204, dependencies=editor)
    async def put_archive(sha256: str, request: Request) -> None:
        data = await _body(request, max_bytes=MAX_BYTES)
        await run_in_threadpool(services.archives.put, data, sha256=sha256)

    @router.get("/exists", dependencies=reader)
    def has_archive(sha256: str) -> bool:
        return services.archives.has(sha256)

    @router.get("", response_class=Response, dependencies=reader)
    def get_archive(sha256: str) -> Response:
        return Response(services.archives.get(sha256), media_type="application/gzip")

    return router


async def _body(request: Request, *, max_bytes: int) -> bytes:
    parts, total = [], 0
    async for part in request.stream():
        total += len(part)
        if total > max_bytes:
            raise InputError(
                f"the upload exceeds the limit of {max_bytes} bytes. Leave data out with a .trekignore file."
            )
        parts.append(part)
    return b"".join(parts)
