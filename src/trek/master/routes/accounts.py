"""Routes of users, logins and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from trek.client import models
from trek.control.services import Services
from trek.errors import NotAllowed
from trek.master.auth import Auth


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Admins manage users; all users log in, and manage their own tokens and password."""
    accounts = services.accounts
    router = APIRouter(tags=["accounts"])
    admin, viewer = [Depends(auth.at_least("admin"))], [Depends(auth.at_least("viewer"))]

    @router.post("/login")
    def login(body: models.Login, request: Request) -> models.Token:
        return accounts.login(body, origin=request.client.host if request.client is not None else "")

    @router.get("/whoami", dependencies=viewer)
    def whoami(request: Request) -> models.User:
        identity = auth.identify(request)
        assert identity.role is not None
        return models.User(name=identity.name, role=identity.role)

    @router.get("/users", dependencies=viewer)
    def list_users() -> list[models.User]:
        return accounts.users()

    @router.post("/users", status_code=201, dependencies=admin)
    def create_user(body: models.CreateUser) -> models.User:
        return accounts.create_user(body)

    @router.patch("/users/{name}", dependencies=viewer)
    def change_user(name: str, body: models.ChangeUser, request: Request) -> models.User:
        identity = auth.identify(request)
        is_own_password = identity.name == name and body.role is None and body.is_active is None
        if identity.role != "admin" and not is_own_password:
            raise NotAllowed("only an admin may change other users or any role.")
        return accounts.change_user(name, body)

    @router.get("/tokens", dependencies=viewer)
    def list_tokens(request: Request) -> list[models.Token]:
        return accounts.tokens(auth.identify(request).name)

    @router.post("/tokens", status_code=201, dependencies=viewer)
    def create_token(body: models.CreateToken, request: Request) -> models.Token:
        return accounts.create_token(auth.identify(request).name, body)

    @router.delete("/tokens/{token_id}", status_code=204, dependencies=viewer)
    def revoke_token(token_id: int, request: Request) -> None:
        accounts.revoke_token(auth.identify(request).name, token_id)

    return router
