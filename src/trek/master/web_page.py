"""WebPage: the files of the web page, as the build of the package left them in `page/`, and the headers around them.

The page itself is in `web/` of the source tree and speaks the REST API alone. Where it was not built, `/` says how to.
"""

from __future__ import annotations

import gzip
import mimetypes
import re
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = Path(__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types trek"
)
_STRICT = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Trek</title></head><body>
<h1>Trek is running, but its web page was not built</h1>
<p>The page is built when the package is, which downloads packages of npm. That was not possible here.</p>
<p>In the source tree, run <code>make web</code> where npm's registry can be reached, and reload this page.</p>
<p>Everything else works: see <code>trek --help</code> and the <a href="docs">REST API</a>.</p>
</body></html>
"""


def is_page(path: str) -> bool:
    """Whether a path is one of the page's own files, which hold nothing secret."""
    return path == "/" or path == "/favicon.svg" or path.startswith("/assets/")


def make_router(folder: Path = FOLDER) -> APIRouter:
    """Everybody gets the page; what it shows, it asks the API for."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def get_index(request: Request) -> Response:
        if not (folder / "index.html").is_file():
            return HTMLResponse(_MISSING, status_code=503)
        headers = {"cache-control": "no-cache", "content-security-policy": POLICY}
        return _file(folder / "index.html", request.headers, extra=headers)

    @router.get("/favicon.svg")
    def get_icon(request: Request) -> Response:
        return _file(folder / "favicon.svg", request.headers, extra={"cache-control": "max-age=86400"})

    @router.get("/assets/{name}")
    def get_asset(name: str, request: Request) -> Response:
        """Their names change with their contents. A worker's script has a policy of its own."""
        headers = {"cache-control": "public, max-age=31536000, immutable", "content-security-policy": POLICY}
        return _file(folder / "assets" / name, request.headers, extra=headers)

    return router


def _file(path: Path, asked: Headers, *, extra: dict[str, str]) -> Response:
    if not _NAME.fullmatch(path.name) or path.name in (".", "..") or not path.is_file():
        raise HTTPException(404, "not found")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers = {**extra, "vary": "accept-encoding"}
    if "gzip" not in asked.get("accept-encoding", ""):
        return Response(path.read_bytes(), media_type=kind, headers=headers)
    return Response(
        _compressed(path, path.stat().st_mtime_ns), media_type=kind, headers={**headers, "content-encoding": "gzip"}
    )


@lru_cache(maxsize=64)
def _compressed(path: Path, changed_ns: int) -> bytes:
    return gzip.compress(path.read_bytes(), 9)


class StrictHeaders:
    """Middleware: answers are not framed, not sniffed, and run nothing, unless a route says what they may do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers that the answer does not have."""

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message.get("headers", [])))
                for name, value in _STRICT.items():
                    headers.setdefault(name, value)
                message = {**message, "headers": headers.raw}
            await send(message)

        await self._app(scope, receive, add if scope["type"] == "http" else send)
