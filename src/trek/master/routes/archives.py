"""Routes of archives: the model folders of experiments."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from trek.control.services import Services
from trek.master.auth import Auth


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Editors upload and download archives, whose files may hold anything; trials download their own one."""
    router = APIRouter(prefix="/archives/{sha256}", tags=["archives"])
    reader, editor = [Depends(auth.reader_of_archive("viewer"))], [Depends(auth.at_least("editor"))]

    @router.put("", status_code=204, dependencies=editor)
    async def put_archive(sha256: str, request: Request) -> None:
        data = await request.body()
        await run_in_threadpool(services.archives.put, data, sha256=sha256)

    @router.get("/exists", dependencies=reader)
    def has_archive(sha256: str) -> bool:
        return services.archives.has(sha256)

    @router.get("", response_class=Response, dependencies=[Depends(auth.reader_of_archive("editor"))])
    def get_archive(sha256: str) -> Response:
        return Response(services.archives.get(sha256), media_type="application/gzip")

    return router
