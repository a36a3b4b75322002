"""Routes of users, logins and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from trek.client import models
from trek.control.accounts import Identity
from trek.control.services import Services
from trek.errors import NotAllowed
from trek.master.auth import Auth
from trek.master.login_limits import LoginLimits
from trek.master.password_work import PasswordWork


def make_router(services: Services, auth: Auth, *, limits: LoginLimits) -> APIRouter:
    """Admins manage users; all users log in, and manage their own tokens and password."""
    accounts, passwords = services.accounts, PasswordWork()
    router = APIRouter(tags=["accounts"])
    admin, viewer = [Depends(auth.at_least("admin"))], [Depends(auth.at_least("viewer"))]

    @router.post("/login")
    async def login(body: models.Login, request: Request) -> models.Token:
        attempt = limits.begin(body.name, address=_address(request))
        token = await passwords.run(accounts.login, body)
        limits.succeeded(attempt)
        return token

    @router.get("/whoami", dependencies=viewer)
    async def whoami(request: Request) -> models.User:
        identity = auth.identify(request)
        assert identity.role is not None
        return models.User(name=identity.name, role=identity.role)

    @router.get("/users", dependencies=viewer)
    def list_users() -> list[models.User]:
        return accounts.users()

    @router.post("/users", status_code=201, dependencies=admin)
    async def create_user(body: models.CreateUser) -> models.User:
        return await passwords.run(accounts.create_user, body)

    @router.patch("/users/{name}", dependencies=viewer)
    async def change_user(name: str, body: models.ChangeUser, request: Request) -> models.User:
        """An admin may set the passwords of others; one's own is changed with the old one."""
        identity = auth.identify(request)
        _check_change(identity, name, body)
        if needs_old_password(identity, name, body):
            attempt = limits.begin(name, address=_address(request))
            await passwords.run(accounts.check_password, name, body.old_password or "")
            limits.succeeded(attempt)
        return await passwords.run(accounts.change_user, name, body)

    @router.get("/tokens", dependencies=viewer)
    def list_tokens(request: Request) -> list[models.Token]:
        return accounts.tokens(auth.identify(request).name)

    @router.post("/tokens", status_code=201, dependencies=viewer)
    def create_token(body: models.CreateToken, request: Request) -> models.Token:
        identity = auth.identify(request)
        by = None if identity.is_home_owner else request.state.token
        return accounts.create_token(identity.name, body, by=by)

    @router.delete("/tokens/{token_id}", status_code=204, dependencies=viewer)
    def revoke_token(token_id: int, request: Request) -> None:
        accounts.revoke_token(auth.identify(request).name, token_id)

    return router


def needs_old_password(identity: Identity, name: str, change: models.ChangeUser) -> bool:
    """Whether a change is one of the own password. The home's owner, who may reset any, is not a user. Pure."""
    return change.password is not None and identity.name == name and not identity.is_home_owner


def _check_change(identity: Identity, name: str, change: models.ChangeUser) -> None:
    is_own_password = identity.name == name and change.role is None and change.is_active is None
    if identity.role != "admin" and not is_own_password:
        raise NotAllowed("only an admin may change other users or any role.")
    if needs_old_password(identity, name, change) and change.old_password is None:
        raise NotAllowed("your own password is changed with the old one. Add old_password.")


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""
