"""Routes of the control plane itself."""

from __future__ import annotations

import os
from collections.abc import Callable

from fastapi import APIRouter, Depends

from trek._version import __version__
from trek.client import models
from trek.control.services import Services
from trek.master.auth import Auth


def make_router(services: Services, auth: Auth, *, stop: Callable[[bool], None]) -> APIRouter:
    """Viewers read, admins stop it."""
    router = APIRouter(prefix="/cluster", tags=["cluster"])

    @router.get("", dependencies=[Depends(auth.at_least("viewer"))])
    def get_cluster() -> models.ClusterInfo:
        return services.cluster.info(version=__version__, pid=os.getpid())

    @router.post("/stop", status_code=202, dependencies=[Depends(auth.at_least("admin"))])
    def stop_cluster(kill: bool = False) -> None:
        stop(kill)

    return router
