"""Errors as HTTP answers: a status, the kind and one sentence."""

from __future__ import annotations

import math

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from trek import errors
from trek.client import models
from trek.client.wire_values import MAX_KEY_CHARACTERS, clean
from trek.experiments.masking import redacted
from trek.master.auth import NotLoggedIn

_STATUS: dict[type[errors.TrekError], int] = {
    NotLoggedIn: 401,
    errors.TooManyRequests: 429,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.InputError: 400,
    errors.StorageError: 507,
    errors.TrekError: 500,
}


def error_answer(error: errors.TrekError) -> JSONResponse:
    """The answer to a request that failed with `error`."""
    status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
    kind = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    headers = {}
    if isinstance(error, errors.TooManyRequests):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = models.ErrorBody(kind=kind, message=redacted(clean(str(error)), frozenset())).model_dump()
    return JSONResponse(body, status_code=status, headers=headers)


async def show_error(request: Request, error: Exception) -> JSONResponse:
    """Handler of what Trek raises."""
    assert isinstance(error, errors.TrekError)
    return error_answer(error)


async def show_bad_request(request: Request, error: Exception) -> JSONResponse:
    """Handler of requests that do not fit their route."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part)[:MAX_KEY_CHARACTERS] for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    body = models.ErrorBody(kind="InputError", message=clean(f"invalid request, {where}: {problem}."))
    return JSONResponse(body.model_dump(), status_code=422)


async def show_http_error(request: Request, error: Exception) -> JSONResponse:
    """Handler of what the framework refuses: an unknown route or method, a body that cannot be read or is too large."""
    assert isinstance(error, HTTPException)
    kind = "NotFound" if error.status_code == 404 else "InputError"
    message = clean(f"{request.method} {request.url.path}: {error.detail}.")
    body = models.ErrorBody(kind=kind, message=message).model_dump()
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)
