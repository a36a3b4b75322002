"""Reads what flows of a home left: their names, stores, graphs and logs. Changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from trek.client.flow_models import FlowRunDetails
from trek.errors import InputError
from trek.flow.drawing import GraphNode, map_of
from trek.flow.flow_reader import FlowReader, RunRow, file_name
from trek.flow.service_steps import read_service_log


def flow_names(home: Path) -> list[str]:
    """The flows of `home` that have been run."""
    return sorted(path.parent.name for path in (home / "flows").glob("*/flow.db"))


def open_reader(name: str, *, home: Path) -> FlowReader:
    """The records of a flow that has been run."""
    if name not in flow_names(home):
        known = ", ".join(flow_names(home)) or "none"
        raise InputError(f"no flow {name!r} has been run. Flows that have: {known}.")
    return FlowReader(name, home=home)


def nodes_of(run: FlowRunDetails, *, graph: list[dict[str, Any]] | None = None) -> list[GraphNode]:
    """The run's graph for drawing, or another `graph` with the states of the run's steps."""
    steps = {step.name: step for step in run.steps}
    nodes = [(node.name, node.after) for node in run.graph]
    if graph is not None:
        nodes = [(node["name"], node["after"]) for node in graph]
    names = {name for name, _ in nodes}
    parts: dict[str, Counter[str]] = {}
    for step in run.steps:  # of maps over what another step gave, whose steps are not in the graph
        if step.name not in names and (whole := map_of(step.name)) is not None:
            parts.setdefault(whole, Counter())[step.state] += 1
    return [
        GraphNode(name, tuple(after), found.state, found.seconds, parts.get(name, {}))
        if (found := steps.get(name))
        else GraphNode(name, tuple(after))
        for name, after in nodes
    ]


def read_log(store: FlowReader, run: RunRow, step: str) -> str:
    """What a step wrote."""
    return read_log_bytes(store, run, step).decode(errors="replace")


def read_log_bytes(store: FlowReader, run: RunRow, step: str, *, start: int = 0) -> bytes:
    """What a step wrote, from the byte `start` on."""
    rows = {row.name: row for row in store.steps(run.id)}
    if step not in rows:
        raise InputError(f"run {run.id} has no step {step!r}. It has: {', '.join(list(rows)[:20])}.")
    key = rows[step].key
    # The log of a cached step is in the run that computed its result.
    source = store.run_of_result(key) if rows[step].state == "cached" and key else None
    if (of_service := read_service_log(store.services / file_name(step))) is not None:
        return of_service.encode()[start:]
    path = store.log_path(source or run.id, step)
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read()
