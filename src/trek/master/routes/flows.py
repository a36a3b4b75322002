"""Routes of runs of flows."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from trek.client.flow_models import FlowLog, FlowRun, FlowRunDetails, FlowSummary, SaveFlowRun
from trek.control.services import Services
from trek.master.auth import Auth, check_owner
from trek.master.routes.paging import Cursor, Limit, read_pair, tell_next


def make_router(services: Services, auth: Auth) -> APIRouter:
    """Viewers read; editors record runs, and update those they own."""
    router = APIRouter(prefix="/flows", tags=["flows"])
    viewer, editor = [Depends(auth.at_least("viewer"))], [Depends(auth.at_least("editor"))]

    @router.get("", dependencies=viewer)
    def list_flows() -> list[FlowSummary]:
        return services.flows.all()

    @router.get("/{flow}/runs", dependencies=viewer)
    def list_runs(flow: str, response: Response, limit: Limit = 1000, cursor: Cursor = None) -> list[FlowRun]:
        """The newest first."""
        found = services.flows.runs(flow, limit=limit, before=read_pair(cursor))
        tell_next(response, found, limit=limit, cursor=lambda run: f"{run.started_s!r}:{run.id}")
        return found

    @router.get("/{flow}/runs/{run}", dependencies=viewer)
    def get_run(flow: str, run: str) -> FlowRunDetails:
        return services.flows.run(flow, run)

    @router.get("/{flow}/runs/{run}/log", dependencies=viewer)
    def get_log(flow: str, run: str, step: str) -> FlowLog:
        """What a step wrote, for a run in the home of the control plane."""
        return FlowLog(text=services.flows.log(flow, run, step=step))

    @router.put("/{flow}/runs/{run}", status_code=204, dependencies=editor)
    def save_run(flow: str, run: str, body: SaveFlowRun, request: Request) -> None:
        identity = auth.identify(request)
        owner = services.flows.owner(flow, run)
        if owner is not None:
            check_owner(identity, owner, what=f"run {run!r}")
        services.flows.save(flow, run, body, owner=identity.name)

    return router
