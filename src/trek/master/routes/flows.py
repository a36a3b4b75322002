"""Routes of runs of flows."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from trek.client.flow_models import FlowLog, FlowRun, FlowRunDetails, FlowSummary
from trek.control.services import Services
from trek.errors import NotAllowed
from trek.master.auth import Auth
from trek.master.routes.paging import Cursor, Limit, read_pair, tell_next


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Anybody looks; editors record runs, and go on recording what is theirs."""
    router = APIRouter(prefix="/flows", tags=["flows"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]

    @router.get("", dependencies=viewer)
    def list_flows() -> list[FlowSummary]:
        return services.flows()

    @router.get("/{flow}/runs", dependencies=viewer)
    def list_runs(flow: str, response: Response, limit: Limit = 1000, cursor: Cursor = None) -> list[FlowRun]:
        """The newest first."""
        found = services.flow_runs(flow, limit=limit, before=read_pair(cursor))
        tell_next(response, found, limit=limit, cursor=lambda run: f"{run.started_s!r}:{run.id}")
        return found

    @router.get("/{flow}/runs/{run}", dependencies=viewer)
    def get_run(flow: str, run: str) -> FlowRunDetails:
        return services.flow_run(flow, run)

    @router.get("/{flow}/runs/{run}/log", dependencies=viewer)
    def get_log(flow: str, run: str, step: str) -> FlowLog:
        """What a step wrote, of a run that lies in the home of the control plane."""
        return FlowLog(text=services.flow_log(flow, run, step=step))

    @router.put("/{flow}/runs/{run}", status_code=204, dependencies=editor)
    def save_run(flow: str, run: str, body: FlowRunDetails, request: Request) -> None:
        identity = auth.identify(request)
        owner = services.flow_run_owner(flow, run)
        if owner not in (None, identity.name) and identity.role != "admin":
            raise NotAllowed(f"run {run!r} belongs to {owner or 'nobody'}; ask them or an admin.")
        services.save_flow_run(flow, run, body, owner=identity.name)

    return router
