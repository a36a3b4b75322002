"""FlowService: runs of flows, both those that were sent here and those of this home, read from their flows' records.

A flow of this home need not be sent: its runs take no control plane, and any later one lists them. How flows run is not
decided here.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from trek.client.flow_models import FlowRun, FlowRunDetails, FlowStep, FlowSummary
from trek.client.wire_values import clean
from trek.control.damaged_rows import each_shown, shown
from trek.control.flows.flow_tables import FlowRunRow, FlowStepRow
from trek.control.store import Store
from trek.errors import InputError, NotFound
from trek.experiments.masking import masked, redacted, secret_values
from trek.flow import records
from trek.flow.inspect import open_reader, read_log
from trek.system.clock import Clock

SILENCE_S = 60.0
"""A run that has not reported for this long has lost its process or its connection."""
Run = TypeVar("Run", FlowRun, FlowRunDetails)
_STEP_FIELDS = ("name", "state", "attempt", "seconds", "reason", "error")


class FlowService:
    """Saves and lists runs of flows. For runs of this home, its own records take precedence over what was sent."""

    def __init__(self, store: Store, *, home: Path, clock: Clock) -> None:
        self._store = store
        self._home = home
        self._clock = clock

    def save(self, flow: str, run: str, record: FlowRunDetails, *, owner: str) -> None:
        """Record the state of a run, replacing what was recorded before. The first to record it owns it."""
        if (record.flow, record.id) != (flow, run):
            raise InputError(
                f"the body describes run {record.id!r} of flow {record.flow!r}, "
                f"but the URL names run {run!r} of flow {flow!r}."
            )
        with self._store.writing() as session:
            known = session.get(FlowRunRow, (flow, run))
            session.merge(_to_row(record, owner=known.owner if known else owner, now_s=self._clock.now_s()))
            session.flush()
            _save_steps(session, record)

    def owner(self, flow: str, run: str) -> str | None:
        """Who recorded the run; None for one that was never sent."""
        with self._store.reading() as session:
            row = session.get(FlowRunRow, (flow, run))
            return row.owner if row else None

    def all(self) -> list[FlowSummary]:
        """All flows by name, each with its newest run."""
        with self._store.reading() as session:
            names = set(session.scalars(select(FlowRunRow.flow).distinct()))
        names.update(records.flow_names(self._home))
        return [_summary(name, runs) for name in sorted(names) if (runs := self._runs(name))]

    def runs(self, flow: str, *, limit: int | None = None, before: tuple[float, str] | None = None) -> list[FlowRun]:
        """The runs of a flow, the newest first: at most `limit`, started before `before` (time, id)."""
        runs = self._runs(flow)
        if not runs:
            raise NotFound(f"no flow {flow!r} has been run. See `trek flow list`.")
        return [run for run in runs if before is None or (run.started_s, run.id) < before][:limit]

    def run(self, flow: str, run: str) -> FlowRunDetails:
        """One run with its steps."""
        owner = self.owner(flow, run)
        own = records.own_run(flow, run, home=self._home)
        if own is not None:
            return _shown(own.model_copy(update={"owner": owner or ""}))
        if owner is None:
            raise NotFound(f"flow {flow!r} has no run {run!r}. See `trek flow list {flow}`.")
        return self._sent_run(flow, run)

    def log(self, flow: str, run: str, *, step: str) -> str:
        """What a step of a run of this home wrote. Of a run elsewhere only the steps are recorded here."""
        found, own = self.run(flow, run), records.own_run(flow, run, home=self._home)
        if step not in [one.name for one in found.steps]:
            raise NotFound(f"run {run!r} of flow {flow!r} has no step {step!r}. See `trek flow status {flow}`.")
        if own is None:
            raise NotFound(
                f"the logs of run {run!r} of flow {flow!r} are on the machine that ran it. See `trek flow logs` there."
            )
        with closing(open_reader(flow, home=self._home)) as store:
            return redacted(read_log(store, store.find_run(run), step), secret_values(own.params))

    def _runs(self, flow: str) -> list[FlowRun]:
        with self._store.reading() as session:
            rows = session.scalars(select(FlowRunRow).where(FlowRunRow.flow == flow)).all()
        now_s = self._clock.now_s()

        def show(row: FlowRunRow) -> FlowRun:
            return _shown(FlowRun.model_validate(_describe(row, now_s=now_s)))

        runs = {run.id: run for run in each_shown(rows, show, instead=_damaged)}
        for own in records.own_runs(flow, home=self._home):
            owner = runs[own.id].owner if own.id in runs else ""
            runs[own.id] = _shown(own.model_copy(update={"owner": owner}))
        return sorted(runs.values(), key=lambda one: (one.started_s, one.id), reverse=True)

    def _sent_run(self, flow: str, run: str) -> FlowRunDetails:
        with self._store.reading() as session:
            row = session.get_one(FlowRunRow, (flow, run))
            steps = [FlowStep(**values) for values in _step_values(session, flow, run)]
        now_s = self._clock.now_s()

        def show(row: FlowRunRow) -> FlowRunDetails:
            described = {**_describe(row, now_s=now_s), "graph": row.graph, "steps": steps}
            return _shown(FlowRunDetails.model_validate(described))

        return shown(row, show, instead=_damaged)


def _shown(run: Run) -> Run:
    """A run without its secrets, wherever they occur in it."""
    secrets = secret_values(run.params)
    changes: dict[str, Any] = {"params": masked(run.params), "error": redacted(run.error, secrets)}
    if isinstance(run, FlowRunDetails):
        changes["steps"] = [_shown_step(step, secrets) for step in run.steps]
    return run.model_copy(update=changes)


def _shown_step(step: FlowStep, secrets: frozenset[str]) -> FlowStep:
    texts = {name: getattr(step, name) for name in ("reason", "error")}
    return step.model_copy(update={name: redacted(text, secrets) for name, text in texts.items() if text})


def _summary(name: str, runs: list[FlowRun]) -> FlowSummary:
    return FlowSummary(name=name, num_runs=len(runs), last_run=runs[0])


def _to_row(record: FlowRunDetails, *, owner: str, now_s: float) -> FlowRunRow:
    failed = (step.error for step in record.steps if step.state == "failed" and step.error)
    return FlowRunRow(
        flow=record.flow,
        id=record.id,
        state=record.state,
        owner=owner,
        params=record.params,
        source=record.source,
        graph=[node.model_dump() for node in record.graph],
        num_steps=Counter(step.state for step in record.steps),
        error=next(failed, ""),
        started_s=record.started_s,
        ended_s=record.ended_s,
        heard_s=now_s,
    )


def _describe(row: FlowRunRow, *, now_s: float) -> dict[str, Any]:
    names = ("id", "flow", "owner", "source", "started_s", "ended_s", "num_steps", "error")
    is_lost = row.state == "running" and now_s - row.heard_s > SILENCE_S
    return {
        **{name: getattr(row, name) for name in names},
        "state": "interrupted" if is_lost else row.state,
        "params": row.params,
    }


def _damaged(row: FlowRunRow, reason: str) -> FlowRunDetails:
    return FlowRunDetails(
        id=clean(row.id),
        flow=clean(row.flow),
        state=clean(row.state),
        owner=row.owner,
        started_s=row.started_s,
        ended_s=row.ended_s,
        error=f"cannot be shown: {reason}",
    )


def _save_steps(session: Session, record: FlowRunDetails) -> None:
    """Write only the steps that changed: a run of thousands is sent repeatedly while it is running."""
    known = list(enumerate(_step_values(session, record.flow, record.id)))
    wanted = list(enumerate(step.model_dump() for step in record.steps))
    gone = [position for position, values in known if position >= len(wanted) or values != wanted[position][1]]
    new = [pair for pair in wanted if pair[0] >= len(known) or known[pair[0]][1] != pair[1]]
    key = {"flow": record.flow, "run": record.id}
    for first in range(0, len(gone), 500):
        chosen = FlowStepRow.position.in_(gone[first : first + 500])
        session.execute(delete(FlowStepRow).filter_by(**key).where(chosen))
    if new:
        session.execute(insert(FlowStepRow), [{**key, "position": position, **values} for position, values in new])


def _step_values(session: Session, flow: str, run: str) -> list[dict[str, Any]]:
    columns = [getattr(FlowStepRow, name) for name in _STEP_FIELDS]
    rows = session.execute(select(*columns).filter_by(flow=flow, run=run).order_by(FlowStepRow.position))
    return [dict(zip(_STEP_FIELDS, row, strict=True)) for row in rows]
