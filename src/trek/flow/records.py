"""The records of this home's flows in the types of the REST API. Changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from trek.client.flow_models import FlowNode, FlowRun, FlowRunDetails, FlowStep, FlowSummary
from trek.flow.flow_reader import FlowReader, RunRow, StepRow
from trek.flow.inspect import flow_names, open_reader

__all__ = ["describe", "flow_names", "own_flows", "own_run", "own_run_or_newest", "own_runs"]


def own_flows(home: Path) -> list[FlowSummary]:
    """The flows of `home` by name, each with its newest run."""
    found = [(name, own_runs(name, home=home)) for name in flow_names(home)]
    return [FlowSummary(name=name, num_runs=len(runs), last_run=runs[0]) for name, runs in found if runs]


def own_runs(flow: str, *, home: Path) -> list[FlowRun]:
    """The runs of a flow of `home`, the newest first; empty if it was never run here."""
    if flow not in flow_names(home):
        return []
    with closing(FlowReader(flow, home=home)) as store:
        counts, errors = store.count_steps(), store.first_errors()
        runs = reversed(store.runs())
        return [
            FlowRun(**_fields(flow, run), num_steps=counts.get(run.id, {}), error=errors.get(run.id, ""))
            for run in runs
        ]


def own_run(flow: str, run: str, *, home: Path) -> FlowRunDetails | None:
    """One run of a flow of `home` with its steps; None if there is no such run."""
    if flow not in flow_names(home):
        return None
    with closing(FlowReader(flow, home=home)) as store:
        found = [row for row in store.runs() if row.id == run]
        return describe(flow, found[0], store.steps(run)) if found else None


def own_run_or_newest(flow: str, run: str | None, *, home: Path) -> FlowRunDetails:
    """One run of a flow of `home`, or its newest; InputError where there is none."""
    with closing(open_reader(flow, home=home)) as store:
        found = store.find_run(run)
        return describe(flow, found, store.steps(found.id))


def describe(flow: str, run: RunRow, steps: list[StepRow]) -> FlowRunDetails:
    """A run with its graph and steps."""
    failed = (step.error for step in steps if step.state == "failed" and step.error)
    return FlowRunDetails(
        **_fields(flow, run),
        num_steps=Counter(step.state for step in steps),
        error=next(failed, ""),
        graph=[FlowNode(**node) for node in json.loads(run.graph)],
        steps=[_step(step) for step in steps],
    )


def _fields(flow: str, run: RunRow) -> dict[str, Any]:
    return {
        "id": run.id,
        "flow": flow,
        "state": run.true_state,
        "params": json.loads(run.params),
        "source": run.source,
        "started_s": run.started,
        "ended_s": run.ended,
    }


def _step(row: StepRow) -> FlowStep:
    return FlowStep(
        name=row.name,
        state=row.state,
        attempt=row.attempt,
        seconds=row.seconds,
        reason=row.reason,
        error=row.error,
    )
