"""Routes of registered models, templates and the queue of jobs."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth, check_owner


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read; editors add, and change what they own."""
    router = APIRouter(tags=["registry"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]

    @router.get("/jobs", dependencies=viewer)
    def list_jobs() -> list[models.Job]:
        return services.trials.jobs()

    @router.get("/models", dependencies=viewer)
    def list_models() -> list[models.RegisteredModel]:
        return services.models.all()

    @router.post("/models", status_code=201, dependencies=editor)
    def create_model(body: models.CreateModel, request: Request) -> models.RegisteredModel:
        return services.models.create(body, owner=auth.identify(request).name)

    @router.get("/models/{name}", dependencies=viewer)
    def get_model(name: str) -> models.RegisteredModel:
        return services.models.get(name)

    @router.post("/models/{name}/versions", status_code=201, dependencies=editor)
    def register_version(name: str, body: models.RegisterVersion, request: Request) -> models.RegisteredModel:
        check_owner(auth.identify(request), services.models.owner(name), what=f"model {name!r}")
        return services.models.register(name, body)

    @router.delete("/models/{name}", status_code=204, dependencies=editor)
    def delete_model(name: str, request: Request) -> None:
        check_owner(auth.identify(request), services.models.owner(name), what=f"model {name!r}")
        services.models.delete(name)

    @router.get("/templates", dependencies=viewer)
    def list_templates() -> list[models.Template]:
        return services.templates.all()

    # A path: earlier versions accepted names with a slash.
    @router.get("/templates/{name:path}", dependencies=viewer)
    def get_template(name: str, request: Request) -> models.Template:
        """Its secrets are shown only to its owner and admins."""
        identity, owner = auth.identify(request), services.templates.get(name).owner
        return services.templates.get(name, is_masked=identity.role != "admin" and identity.name != owner)

    @router.post("/templates", status_code=201, dependencies=editor)
    def set_template(body: models.SetTemplate, request: Request) -> models.Template:
        identity = auth.identify(request)
        owner = services.templates.owner(body.name)
        if owner is not None:
            check_owner(identity, owner, what=f"template {body.name!r}")
        return services.templates.set(body.name, body.config, owner=identity.name)

    @router.delete("/templates/{name:path}", status_code=204, dependencies=editor)
    def delete_template(name: str, request: Request) -> None:
        check_owner(auth.identify(request), services.templates.get(name).owner, what=f"template {name!r}")
        services.templates.delete(name)

    return router
