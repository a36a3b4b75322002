"""`trek flow list`: flows and their runs, of the master that was named, else of this home, without a control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.connect import connect
from trek.cli.listing import Listing, listing_options
from trek.errors import NotFound

if TYPE_CHECKING:
    from trek.client.flow_models import FlowRun, FlowSummary


@click.command(name="list")
@click.argument("flow_name", metavar="[FLOW]", required=False)
@listing_options
@click.pass_obj
def list_flows(obj: dict[str, Any], flow_name: str | None, *, listing: Listing) -> None:
    """List all flows with their newest runs, or the runs of FLOW, the newest first."""
    if flow_name is not None:
        listing.show(_find_runs(obj, flow_name), row=_row, empty="no runs")
    else:
        listing.show(_find_flows(obj), row=_summary_row, empty="no flow has been run")


def _find_flows(obj: dict[str, Any]) -> list[FlowSummary]:
    from trek.flow.records import own_flows
    from trek.world import trek_home

    if not obj["master"]:
        return own_flows(trek_home())
    with connect(obj) as client:
        return client.flows()


def _find_runs(obj: dict[str, Any], flow: str) -> list[FlowRun]:
    from trek.flow.records import own_runs
    from trek.world import trek_home

    if obj["master"]:
        with connect(obj) as client:
            return client.flow_runs(flow)
    runs = own_runs(flow, home=trek_home())
    if not runs:
        raise NotFound(f"no flow {flow!r} has been run. See `trek flow list`.")
    return runs


def _summary_row(one: FlowSummary) -> dict[str, Any]:
    return {"flow": one.name, "runs": one.num_runs, **_row(one.last_run)}


def _row(run: FlowRun) -> dict[str, Any]:
    steps = ", ".join(f"{count} {state}" for state, count in run.num_steps.items())
    seconds = None if run.ended_s is None else round(run.ended_s - run.started_s, 1)
    first_line = run.error.partition("\n")[0]
    return {
        "run": run.id,
        "state": run.state,
        "started": render.ago(run.started_s),
        "seconds": seconds,
        "steps": steps,
        "error": first_line,
    }
