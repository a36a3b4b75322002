"""Runs of flows for commands: of the master that was named, else of this home, without a control plane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from trek.cli.connect import connect
from trek.engines.lines import LineBuffer
from trek.errors import NotFound

if TYPE_CHECKING:
    from trek.client.client import Client
    from trek.client.flow_models import FlowRun, FlowRunDetails, FlowSummary

_FOLLOW_S = 0.2


def find_flows(obj: dict[str, Any]) -> list[FlowSummary]:
    """All flows by name, each with its newest run."""
    from trek.flow.records import own_flows
    from trek.system.home import trek_home

    if not obj["master"]:
        return own_flows(trek_home())
    with connect(obj) as client:
        return client.flows()


def find_runs(obj: dict[str, Any], flow: str) -> list[FlowRun]:
    """The runs of a flow, the newest first."""
    from trek.flow.records import own_runs
    from trek.system.home import trek_home

    if obj["master"]:
        with connect(obj) as client:
            return client.flow_runs(flow)
    runs = own_runs(flow, home=trek_home())
    if not runs:
        raise NotFound(f"no flow {flow!r} has been run. See `trek flow list`.")
    return runs


def find_run(obj: dict[str, Any], flow: str, run: str | None) -> FlowRunDetails:
    """One run of a flow, or its newest, with its steps."""
    from trek.flow.records import own_run_or_newest
    from trek.system.home import trek_home

    if not obj["master"]:
        return own_run_or_newest(flow, run, home=trek_home())
    with connect(obj) as client:
        return _recorded_run(client, flow, run)


def follow_step_log(obj: dict[str, Any], flow: str, run: str | None, *, step: str) -> Iterator[str]:
    """The lines of a step's log as they are written, until the step has ended or the run is not alive any more."""
    chosen = find_run(obj, flow, run).id
    buffer, position = LineBuffer(), 0
    while True:
        # Asked for before the log, so that this includes everything written before the step ended.
        is_over = _has_ended(find_run(obj, flow, chosen), step)
        data = read_step_log(obj, flow, chosen, step=step, start=position)
        position += len(data)
        yield from buffer.feed(data)
        if is_over:
            yield from buffer.flush()
            return
        time.sleep(_FOLLOW_S)


def _has_ended(run: FlowRunDetails, step: str) -> bool:
    state = next((one.state for one in run.steps if one.name == step), "pending")
    return run.state != "running" or state not in ("pending", "running")


def read_step_log(obj: dict[str, Any], flow: str, run: str | None, *, step: str, start: int = 0) -> bytes:
    """What a step wrote, from the byte `start` on. The log is where the run ran: here or at the master."""
    from trek.flow.inspect import open_reader, read_log_bytes
    from trek.flow.records import own_run
    from trek.system.home import trek_home

    if obj["master"]:
        with connect(obj) as client:
            run = _recorded_run(client, flow, run).id
            if own_run(flow, run, home=trek_home()) is None:
                return client.flow_log(flow, run, step=step).encode()[start:]
    with closing(open_reader(flow, home=trek_home())) as store:
        return read_log_bytes(store, store.find_run(run), step, start=start)


def summary(run: FlowRun) -> dict[str, Any]:
    """A run as `--json` and tables show it."""
    return {
        "id": run.id,
        "flow": run.flow,
        "state": run.state,
        "started": run.started_s,
        "seconds": None if run.ended_s is None else run.ended_s - run.started_s,
        "params": run.params,
        "source": run.source,
    }


def summary_with_steps(run: FlowRunDetails) -> dict[str, Any]:
    """A run and its steps as `--json` shows them."""
    return {**summary(run), "steps": [step.model_dump() for step in run.steps]}


def _recorded_run(client: Client, flow: str, run: str | None) -> FlowRunDetails:
    try:
        runs = client.flow_runs(flow)
    except NotFound:
        known = ", ".join(one.name for one in client.flows()[:20]) or "none"
        raise NotFound(
            f"the master at {client.url} has no record of a flow {flow!r}. It has: {known}. "
            "Omit -m and TREK_MASTER to see the runs of this home."
        ) from None
    chosen = [one for one in runs if run is None or one.id == run]
    if not chosen:
        known = ", ".join(one.id for one in runs[:5])
        raise NotFound(f"the master at {client.url} has no run {run!r} of flow {flow!r}. The newest are: {known}.")
    return client.flow_run(flow, chosen[0].id)
