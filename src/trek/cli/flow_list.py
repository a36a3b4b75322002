"""`trek flow list`: flows and their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trek.cli import render
from trek.cli.flow_records import find_flows, find_runs
from trek.cli.listing import Listing, listing_options

if TYPE_CHECKING:
    from trek.client.flow_models import FlowRun, FlowSummary


@click.command(name="list")
@click.argument("flow_name", metavar="[FLOW]", required=False)
@listing_options
@click.pass_obj
def list_flows(obj: dict[str, Any], flow_name: str | None, *, listing: Listing) -> None:
    """List all flows with their newest runs, or the runs of FLOW, the newest first."""
    if flow_name is not None:
        listing.show(find_runs(obj, flow_name), row=_row, empty="No runs.")
    else:
        listing.show(find_flows(obj), row=_summary_row, empty="No flow has been run.")


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
