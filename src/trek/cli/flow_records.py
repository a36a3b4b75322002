"""Runs of flows as a master recorded them, in the shape in which commands show those of this home."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from trek.cli.connect import connect
from trek.errors import NotFound

if TYPE_CHECKING:
    from trek.client.client import Client
    from trek.client.flow_models import FlowRun, FlowRunDetails


def recorded_runs(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """All runs that the master knows, the oldest first, as the list of this home has them."""
    with connect(obj) as client:
        return [_summary(run) for run in reversed(client.flow_runs())]


def recorded_run(obj: dict[str, Any], flow: str, run: str | None) -> dict[str, Any]:
    """One run of a flow, or its newest, with its steps."""
    with connect(obj) as client:
        found = _find(client, flow, run)
    return {**_summary(found), "steps": [step.model_dump() for step in found.steps]}


def recorded_graph(obj: dict[str, Any], flow: str, run: str | None) -> list[Any]:
    """The nodes of a run's graph, with what became of them."""
    from trek.flow.drawing import GraphNode

    with connect(obj) as client:
        found = _find(client, flow, run)
    steps = {step.name: step for step in found.steps}
    return [
        GraphNode(one.name, tuple(one.after), step.state if step else "pending", step.seconds if step else None)
        for one in found.graph
        for step in [steps.get(one.name)]
    ]


def recorded_log(obj: dict[str, Any], flow: str, run: str | None, *, step: str) -> str:
    """What a step of a run that the master knows wrote: it lies where the run ran, which is here or at the master."""
    from trek.flow.inspect import open_store, read_log
    from trek.flow.records import own_run
    from trek.world import trek_home

    with connect(obj) as client:
        found = _find(client, flow, run)
        if own_run(flow, found.id, home=trek_home()) is None:
            return client.flow_log(flow, found.id, step=step)
    with closing(open_store(flow, home=trek_home())) as store:
        return read_log(store, store.find_run(found.id), step)


def _find(client: Client, flow: str, run: str | None) -> FlowRunDetails:
    try:
        runs = client.flow_runs(flow)
    except NotFound:
        known = ", ".join(one.name for one in client.flows()[:20]) or "none"
        raise NotFound(
            f"the master at {client.url} has no record of a flow {flow!r}. It has: {known}. "
            "Leave out -m and TREK_MASTER to look at the runs of this home."
        ) from None
    chosen = [one for one in runs if run is None or one.id == run]
    if not chosen:
        known = ", ".join(one.id for one in runs[:5])
        raise NotFound(f"the master at {client.url} has no run {run!r} of flow {flow!r}. The newest are: {known}.")
    return client.flow_run(flow, chosen[0].id)


def _summary(run: FlowRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "flow": run.flow,
        "state": run.state,
        "started": run.started_s,
        "seconds": None if run.ended_s is None else run.ended_s - run.started_s,
        "params": run.params,
        "source": run.source,
    }
