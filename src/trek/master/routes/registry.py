"""Routes of registered models, templates and the queue of jobs."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from trek.client import models
from trek.control.checkpoints.model_registry import Registry
from trek.control.services import Services
from trek.errors import NotAllowed
from trek.master.auth import Auth


def make_router(registry: Registry, services: Services, auth: Auth) -> APIRouter:
    """Anybody looks; editors add, and change what is theirs."""
    router = APIRouter(tags=["registry"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]

    def check_owner(request: Request, owner: str, what: str) -> None:
        identity = auth.identify(request)
        if identity.role != "admin" and identity.name != owner:
            raise NotAllowed(f"{what} belongs to {owner or 'nobody'}; ask them or an admin.")

    @router.get("/jobs", dependencies=viewer)
    def list_jobs() -> list[models.Job]:
        return services.jobs()

    @router.get("/models", dependencies=viewer)
    def list_models() -> list[models.RegisteredModel]:
        return registry.all_models()

    @router.post("/models", status_code=201, dependencies=editor)
    def create_model(body: models.CreateModel, request: Request) -> models.RegisteredModel:
        return registry.create_model(body, owner=auth.identify(request).name)

    @router.get("/models/{name}", dependencies=viewer)
    def get_model(name: str) -> models.RegisteredModel:
        return registry.model(name)

    @router.post("/models/{name}/versions", status_code=201, dependencies=editor)
    def register_version(name: str, body: models.RegisterVersion, request: Request) -> models.RegisteredModel:
        check_owner(request, registry.owner(name), f"model {name!r}")
        return registry.register(name, body)

    @router.delete("/models/{name}", status_code=204, dependencies=editor)
    def delete_model(name: str, request: Request) -> None:
        check_owner(request, registry.owner(name), f"model {name!r}")
        registry.delete_model(name)

    @router.get("/templates", dependencies=viewer)
    def list_templates() -> list[models.Template]:
        return registry.templates()

    @router.get("/templates/{name}", dependencies=viewer)
    def get_template(name: str, request: Request) -> models.Template:
        """Its secrets are shown to those alone who may create experiments of it."""
        return registry.template(name, is_masked=auth.identify(request).role == "viewer")

    @router.post("/templates", status_code=201, dependencies=editor)
    def set_template(body: models.Template, request: Request) -> models.Template:
        known = {template.name: template.owner for template in registry.templates()}
        identity = auth.identify(request)
        if body.name in known:
            check_owner(request, known[body.name], f"template {body.name!r}")
        return registry.set_template(body.name, body.config, owner=identity.name)

    @router.delete("/templates/{name}", status_code=204, dependencies=editor)
    def delete_template(name: str, request: Request) -> None:
        check_owner(request, registry.template(name).owner, f"template {name!r}")
        registry.delete_template(name)

    return router
