"""Looking at flows and their runs: what the command line shows, as plain data. Changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.drawing import GraphNode
from trek.flow.flow_store import FlowStore, RunRow, StepRow, file_name
from trek.flow.service_steps import read_service_log


def flow_names(home: Path) -> list[str]:
    """Flows that have been run."""
    return sorted(path.parent.name for path in (home / "flows").glob("*/flow.db"))


def open_store(name: str, *, home: Path) -> FlowStore:
    """The records of a flow that has been run."""
    if name not in flow_names(home):
        known = ", ".join(flow_names(home)) or "none"
        raise InputError(f"no flow {name!r} has been run. There are: {known}.")
    return FlowStore(name, home=home)


def describe_run(store: FlowStore, run: RunRow) -> dict[str, Any]:
    """A run and its steps."""
    return {**summarise_run(store, run), "steps": [_describe_step(step) for step in store.steps(run.id)]}


def summarise_run(store: FlowStore, run: RunRow) -> dict[str, Any]:
    """A run without its steps."""
    return {
        "id": run.id,
        "flow": store.name,
        "state": run.true_state,
        "started": run.started,
        "seconds": None if run.ended is None else run.ended - run.started,
        "params": json.loads(run.params),
        "source": run.source,
    }


def _describe_step(step: StepRow) -> dict[str, Any]:
    return {
        "name": step.name,
        "state": step.state,
        "seconds": step.seconds,
        "attempt": step.attempt,
        "reason": step.reason,
        "error": step.error,
    }


def nodes_of(store: FlowStore, run: RunRow, *, graph: list[dict[str, Any]] | None = None) -> list[GraphNode]:
    """The run's graph for drawing, or another `graph` with the states that the run found."""
    steps = {step.name: step for step in store.steps(run.id)}
    nodes = []
    for one in json.loads(run.graph) if graph is None else graph:
        step = steps.get(one["name"])
        state = step.state if step else "pending"
        nodes.append(GraphNode(one["name"], tuple(one["after"]), state, step.seconds if step else None))
    return nodes


def read_log(store: FlowStore, run: RunRow, step: str) -> str:
    """What a step printed."""
    rows = {row.name: row for row in store.steps(run.id)}
    if step not in rows:
        raise InputError(f"run {run.id} has no step {step!r}. It has: {', '.join(list(rows)[:20])}.")
    key = rows[step].key
    # A step that was not run again wrote its log in the run that its result is from.
    source = store.run_of_result(key) if rows[step].state == "cached" and key else None
    if (of_service := read_service_log(store.services / file_name(step))) is not None:
        return of_service
    path = store.log_path(source or run.id, step)
    return path.read_text(errors="replace") if path.exists() else ""
