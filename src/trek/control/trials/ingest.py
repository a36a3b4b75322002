"""Takes what trials report and write into the store: metrics, checkpoints, log lines. Each row counts once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from trek.client.models import MetricPoint, Report, ReportReply
from trek.control.checkpoints.checkpoint_rows import take_checkpoints
from trek.control.checkpoints.retention import expire_checkpoints
from trek.control.logs.levels import levels_of
from trek.control.metrics.metric_blocks import forget, summarise
from trek.control.tables import ExperimentRow, LogTable, MetricTable, TrialRow
from trek.control.trials.searching import report_validation, update_progress
from trek.experiments.system_metrics import GROUP as SYSTEM

_STOPS = {"kill": "killed", "pause": "preempted", "stop": "searcher"}


def take_report(session: Session, trial: TrialRow, report: Report, *, now_s: float) -> ReportReply:
    """Store a report and say whether the trial should stop. A run that was replaced is only told to stop.

    The caller has checked that the checkpoints are in the trial's own storage; see `TrialStorage`.
    """
    if report.run != trial.run or trial.state != "running":
        return ReportReply(stop="killed")
    _take_metrics(session, trial, report.metrics, now_s=now_s)
    if report.checkpoints:
        take_checkpoints(session, trial, report.checkpoints)
        expire_checkpoints(session, session.get_one(ExperimentRow, trial.experiment_id))
    if report.progress is not None:
        trial.progress = min(max(report.progress, 0.0), 1.0)
        session.flush()
        update_progress(session, session.get_one(ExperimentRow, trial.experiment_id))
    stop = _STOPS.get(trial.wanted, "preempted" if trial.is_to_be_resized else "")
    return ReportReply(stop=stop)  # type: ignore[arg-type]


def take_lines(session: Session, trial: TrialRow, *, rank: int, lines: Sequence[tuple[int, str]], now_s: float) -> None:
    """Store lines of the trial's current run, each with the byte it ends at in its file."""
    who = {"trial_id": trial.id, "run": trial.run, "rank": rank, "time_s": now_s}
    levels = levels_of(text for _, text in lines)
    rows = [
        {**who, "position": end, "level": level, "text": text} for (end, text), level in zip(lines, levels, strict=True)
    ]
    if rows:
        session.execute(_insert(session, LogTable).on_conflict_do_nothing(), rows)


def log_position(session: Session, *, trial_id: int, run: int, rank: int) -> int:
    """The byte at which reading a log file continues."""
    ends = select(func.max(LogTable.position)).where(
        LogTable.trial_id == trial_id, LogTable.run == run, LogTable.rank == rank
    )
    return session.scalar(ends) or 0


def _take_metrics(session: Session, trial: TrialRow, points: Sequence[MetricPoint], *, now_s: float) -> None:
    if not points:
        return
    validations = [point for point in points if point.group == "validation"]
    unseen = _unseen(session, trial, validations)
    insert = _insert(session, MetricTable)
    values = {name: insert.excluded[name] for name in ("epoch", "metrics", "time_s", "duration_s")}
    session.execute(
        insert.on_conflict_do_update(index_elements=["trial_id", "group", "batches"], set_=values),
        [{"trial_id": trial.id, **vars(point)} for point in _last_of_each(points)],
    )
    for group in {point.group for point in points}:
        batches = [point.batches for point in points if point.group == group]
        forget(session, trial.id, group, from_batches=min(batches))
        # Rows after these are of an earlier run, and about to be reported again.
        summarise(session, trial.id, group, until=max(batches))
    trained = [point.batches for point in points if not point.group.startswith(SYSTEM)]
    trial.batches = max(trained, default=trial.batches)
    if validations:
        trial.latest_metrics = {k: v for k, v in validations[-1].metrics.items() if v is not None}
    if unseen:
        experiment = session.get_one(ExperimentRow, trial.experiment_id)
        for point in unseen:
            report_validation(session, experiment, trial, point, now_s=now_s)


def _unseen(session: Session, trial: TrialRow, validations: Sequence[MetricPoint]) -> list[MetricPoint]:
    """Validations the Searcher has not seen: a restarted trial reports old ones again."""
    if not validations:
        return []
    seen = set(
        session.scalars(
            select(MetricTable.batches).where(
                MetricTable.trial_id == trial.id,
                MetricTable.group == "validation",
                MetricTable.batches.in_([point.batches for point in validations]),
            )
        )
    )
    return [point for point in _last_of_each(validations) if point.batches not in seen]


def _last_of_each(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    return list({(point.group, point.batches): point for point in points}.values())


def _insert(session: Session, table: type[Any]) -> Any:
    assert isinstance(table.__table__, Table)
    dialect = session.get_bind().dialect.name
    return (sqlite if dialect == "sqlite" else postgresql).insert(table.__table__)
