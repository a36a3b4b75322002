"""ETags: a client whose copy is current gets 304 and no body."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from fastapi import Request, Response

Next = Callable[[Request], Awaitable[Response]]


async def add_etag(request: Request, call_next: Next) -> Response:
    """Middleware: adds an ETag of the content to JSON answers to GET. Streams are left alone."""
    response = await call_next(request)
    is_json = response.headers.get("content-type", "").startswith("application/json")
    if request.method != "GET" or response.status_code != 200 or not is_json:
        return response
    body = b"".join([part async for part in response.body_iterator])  # type: ignore[attr-defined]
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    headers["etag"] = tag
    if tag in [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]:
        headers.pop("content-type", None)
        return Response(status_code=304, headers=headers)
    return Response(body, status_code=200, headers=headers)
