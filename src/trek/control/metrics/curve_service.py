"""CurveService: series of many trials in one answer, downsampled so that no extreme is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from trek.client.view_models import Curve, MetricNames, Sparkline
from trek.control.lookup import find_experiment
from trek.control.metrics.metric_blocks import groups, points_to_show, rows_at
from trek.control.metrics.overview import Point, overviews
from trek.control.store import Store
from trek.control.tables import ExperimentRow, MetricTable, TrialRow

SPARKLINE_POINTS = 32
NAMED_TRIALS = 10
"""How many trials of an experiment are asked for the names of their metrics."""


class CurveService:
    """Reads series."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of_trials(
        self, trial_ids: Sequence[int], *, group: str, metric: str, max_points: int, with_times: bool = False
    ) -> list[Curve]:
        """One metric of these trials, those without it left out; `with_times` reads a row for each point."""
        with self._store.reading() as session:
            if with_times:
                found = [_curve(session, one, group, metric, max_points=max_points) for one in trial_ids]
            else:
                points = overviews(session, trial_ids, group, metric, max_points=max_points)
                found = [_overview(trial_id, points[trial_id]) for trial_id in trial_ids]
        return [curve for curve in found if curve.values]

    def of_experiment(
        self, experiment_id: int, *, group: str, metric: str, max_points: int, with_times: bool = False
    ) -> list[Curve]:
        """One metric of all trials of an experiment."""
        with self._store.reading() as session:
            find_experiment(session, experiment_id)
            ids = session.scalars(
                select(TrialRow.id).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id)
            )
            trial_ids = list(ids)
        return self.of_trials(trial_ids, group=group, metric=metric, max_points=max_points, with_times=with_times)

    def names(self, *, experiment_id: int | None = None, trial_ids: Sequence[int] = ()) -> list[MetricNames]:
        """The groups and metrics of trials, or of the first and last ones of an experiment."""
        known: dict[str, dict[str, None]] = {}
        with self._store.reading() as session:
            if experiment_id is not None:
                find_experiment(session, experiment_id)
                trial_ids = _some_trials(session, experiment_id)
            for trial_id in trial_ids:
                for group in groups(session, trial_id):
                    known.setdefault(group, {}).update(dict.fromkeys(_names(session, trial_id, group)))
        return [MetricNames(group=group, names=list(names)) for group, names in sorted(known.items())]

    def sparklines(self, experiment_ids: Sequence[int]) -> list[Sparkline]:
        """The searcher's metric of each experiment's best trial."""
        with self._store.reading() as session:
            rows = session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(experiment_ids))).all()
            return [
                Sparkline(experiment_id=row.id, values=_sparkline(session, row))
                for row in rows
                if row.best_trial is not None
            ]


def _sparkline(session: Session, row: ExperimentRow) -> list[float]:
    assert row.best_trial is not None
    metric = str(row.config.get("searcher", {}).get("metric", ""))
    return _curve(session, row.best_trial, "validation", metric, max_points=SPARKLINE_POINTS).values


def _overview(trial_id: int, points: Sequence[Point]) -> Curve:
    batches, values = [at for at, _ in points], [value for _, value in points]
    return Curve(trial_id=trial_id, batches=batches, values=values)


def _curve(session: Session, trial_id: int, group: str, metric: str, *, max_points: int) -> Curve:
    rows = [
        row for row in _rows(session, trial_id, group, max_points=max_points) if _value(row.metrics, metric) is not None
    ]
    return Curve(
        trial_id=trial_id,
        batches=[row.batches for row in rows],
        epochs=[row.epoch for row in rows],
        times=[row.time_s for row in rows],
        values=[row.metrics[metric] for row in rows],
    )


def _rows(session: Session, trial_id: int, group: str, *, max_points: int) -> list[Row[Any]]:
    chosen = points_to_show(session, trial_id, group, max_points=max_points)
    if chosen is not None:
        return sorted(rows_at(session, trial_id, group, chosen), key=lambda row: row.batches)
    query = select(*MetricTable.__table__.columns).where(MetricTable.trial_id == trial_id, MetricTable.group == group)
    return list(session.execute(query.order_by(MetricTable.batches)).all())


def _value(metrics: Any, name: str) -> float | None:
    """A finite number, or None: rows of earlier releases may hold anything."""
    found = metrics.get(name) if isinstance(metrics, dict) else None
    return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


def _names(session: Session, trial_id: int, group: str) -> list[str]:
    newest = select(MetricTable.metrics).where(MetricTable.trial_id == trial_id, MetricTable.group == group)
    metrics = session.scalar(newest.order_by(MetricTable.batches.desc()).limit(1))
    return [str(name) for name in metrics] if isinstance(metrics, dict) else []


def _some_trials(session: Session, experiment_id: int) -> list[int]:
    ids = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)
    first = session.scalars(ids.order_by(TrialRow.id).limit(NAMED_TRIALS)).all()
    last = session.scalars(ids.order_by(TrialRow.id.desc()).limit(NAMED_TRIALS)).all()
    return sorted({*first, *last})
