"""Routes of the sessions of browsers."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from trek._version import __version__
from trek.client.models import Login, User
from trek.client.session_models import OpenSession, Session, SessionLink
from trek.control.accounts import LOGIN_DAYS, Identity
from trek.errors import InputError
from trek.master.auth import Auth
from trek.master.login_limits import LoginLimits
from trek.master.password_work import PasswordWork
from trek.master.web_sessions import WebSessions, check_same_origin, csrf_of


def make_router(auth: Auth, *, sessions: WebSessions, limits: LoginLimits) -> APIRouter:
    """Anybody may log in; users make links for their own browsers."""
    router, passwords = APIRouter(tags=["sessions"]), PasswordWork()
    viewer = [Depends(auth.at_least("viewer"))]

    @router.post("/session-links", status_code=201, dependencies=viewer)
    async def make_link(request: Request) -> SessionLink:
        """A code for `/#/login?code=…` that opens one session."""
        return sessions.make_link(request.state.token)

    @router.post("/session")
    async def open_session(body: OpenSession, request: Request, response: Response) -> Session:
        """Log a browser in; the cookie that it gets is not readable by scripts."""
        check_same_origin(request.headers)
        attempt = limits.begin(body.name or "link", address=request.client.host if request.client else "")
        token = await passwords.run(_open, sessions, auth, body)
        limits.succeeded(attempt)
        response.set_cookie(
            sessions.cookie,
            token,
            max_age=int(LOGIN_DAYS * 86_400),
            path=_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return _describe(auth.find(token), csrf=csrf_of(token))

    @router.get("/session", dependencies=viewer)
    async def get_session(request: Request) -> Session:
        """Who is logged in."""
        is_cookie = request.state.is_cookie
        return _describe(auth.identify(request), csrf=csrf_of(request.state.token) if is_cookie else "")

    @router.delete("/session", status_code=204, dependencies=viewer)
    def close_session(request: Request, response: Response) -> None:
        """Log the browser out."""
        if not request.state.is_cookie:
            raise InputError("only the session of a browser can be closed. Use DELETE /tokens/ID for a token.")
        sessions.end(request.state.token)
        response.delete_cookie(sessions.cookie, path=_path(request), httponly=True, samesite="strict")

    return router


def _open(sessions: WebSessions, auth: Auth, body: OpenSession) -> str:
    if body.code:
        return sessions.follow_link(body.code, find=auth.find)
    return sessions.log_in(Login(name=body.name, password=body.password))


def _describe(identity: Identity, *, csrf: str) -> Session:
    assert identity.role is not None
    return Session(user=User(name=identity.name, role=identity.role), csrf=csrf, version=__version__)


def _path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"
