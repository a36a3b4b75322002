"""CurveService: series of many trials in one answer, downsampled so that no extreme is lost."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.view_models import Curve, MetricNames, Sparkline
from trek.control.lookup import find_experiment
from trek.control.metrics.curve_cache import CurveCache
from trek.control.metrics.metric_blocks import groups
from trek.control.metrics.overview import WHOLE, Extent, Overview, overviews
from trek.control.store import Store
from trek.control.tables import ExperimentRow, MetricTable, TrialRow

SPARKLINE_POINTS = 32
NAMED_TRIALS = 10
"""How many trials of an experiment are asked for the names of their metrics."""
_IDS_PER_QUERY = 500


class CurveService:
    """Reads series."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache = CurveCache()

    def of_trials(
        self,
        trial_ids: Sequence[int],
        *,
        group: str,
        metric: str,
        max_points: int,
        with_times: bool = False,
        extent: Extent = WHOLE,
        smoothing: float = 0.0,
    ) -> list[Curve]:
        """One metric of these trials, those without it left out; `with_times` reads a row for each point."""
        found = self._overviews(trial_ids, group, metric, max_points=max_points, extent=extent, smoothing=smoothing)
        shown = {trial_id: one for trial_id, one in found.items() if one.points}
        if not with_times:
            return [_curve(trial_id, one) for trial_id, one in shown.items()]
        with self._store.reading() as session:
            return [_timed_curve(session, trial_id, group, one) for trial_id, one in shown.items()]

    def of_experiment(
        self,
        experiment_id: int,
        *,
        group: str,
        metric: str,
        max_points: int,
        with_times: bool = False,
        extent: Extent = WHOLE,
        smoothing: float = 0.0,
    ) -> list[Curve]:
        """One metric of all trials of an experiment."""
        with self._store.reading() as session:
            find_experiment(session, experiment_id)
            ids = session.scalars(
                select(TrialRow.id).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id)
            )
            trial_ids = list(ids)
        return self.of_trials(
            trial_ids,
            group=group,
            metric=metric,
            max_points=max_points,
            with_times=with_times,
            extent=extent,
            smoothing=smoothing,
        )

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
            best = {row.id: row.best_trial for row in rows if row.best_trial is not None}
        by_metric: dict[str, list[int]] = {}
        for row in rows:
            if row.best_trial is not None:
                by_metric.setdefault(_metric(row), []).append(row.best_trial)
        found: dict[int, Overview] = {}
        for metric, trials in by_metric.items():
            found |= self._overviews(trials, "validation", metric, max_points=SPARKLINE_POINTS)
        return [
            Sparkline(experiment_id=number, values=[value for _, value in found[trial].points if value is not None])
            for number, trial in best.items()
        ]

    def _overviews(
        self,
        trial_ids: Sequence[int],
        group: str,
        metric: str,
        *,
        max_points: int,
        extent: Extent = WHOLE,
        smoothing: float = 0.0,
    ) -> dict[int, Overview]:
        """By trial, from the cache where nothing was reported since."""
        versions = {trial_id: self._store.version(("metrics", trial_id)) for trial_id in trial_ids}
        asked = (group, metric, max_points, extent, smoothing)
        kept = {one: self._cache.find((one, *asked), version=version) for one, version in versions.items()}
        missing = [trial_id for trial_id, one in kept.items() if one is None]
        with self._store.reading() as session:  # opened after the versions were read
            made = overviews(session, missing, group, metric, max_points=max_points, extent=extent, smoothing=smoothing)
        for trial_id, one in made.items():
            self._cache.keep((trial_id, *asked), one, version=versions[trial_id])
        return {trial_id: made[trial_id] if one is None else one for trial_id, one in kept.items()}


def _metric(row: ExperimentRow) -> str:
    return str(row.config.get("searcher", {}).get("metric", ""))


def _curve(trial_id: int, overview: Overview) -> Curve:
    batches, values = [at for at, _ in overview.points], [value for _, value in overview.points]
    return Curve(trial_id=trial_id, batches=batches, values=values, num_undefined=overview.num_undefined)


def _timed_curve(session: Session, trial_id: int, group: str, overview: Overview) -> Curve:
    """Without the points of rows that were deleted in the meantime."""
    when = _when(session, trial_id, group, [at for at, _ in overview.points])
    known = [(at, value, *when[at]) for at, value in overview.points if at in when]
    return Curve(
        trial_id=trial_id,
        batches=[at for at, _, _, _ in known],
        values=[value for _, value, _, _ in known],
        epochs=[epoch for _, _, epoch, _ in known],
        times=[time_s for _, _, _, time_s in known],
        num_undefined=overview.num_undefined,
    )


def _when(session: Session, trial_id: int, group: str, batches: Sequence[int]) -> dict[int, tuple[float, float]]:
    """The epoch and the time of the rows at these batches."""
    table, found = MetricTable, dict[int, tuple[float, float]]()
    owned = select(table.batches, table.epoch, table.time_s).where(table.trial_id == trial_id, table.group == group)
    for start in range(0, len(batches), _IDS_PER_QUERY):
        rows = session.execute(owned.where(table.batches.in_(batches[start : start + _IDS_PER_QUERY])))
        found |= {at: (epoch, time_s) for at, epoch, time_s in rows}
    return found


def _names(session: Session, trial_id: int, group: str) -> list[str]:
    newest = select(MetricTable.metrics).where(MetricTable.trial_id == trial_id, MetricTable.group == group)
    metrics = session.scalar(newest.order_by(MetricTable.batches.desc()).limit(1))
    return [str(name) for name in metrics] if isinstance(metrics, dict) else []


def _some_trials(session: Session, experiment_id: int) -> list[int]:
    ids = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)
    first = session.scalars(ids.order_by(TrialRow.id).limit(NAMED_TRIALS)).all()
    last = session.scalars(ids.order_by(TrialRow.id.desc()).limit(NAMED_TRIALS)).all()
    return sorted({*first, *last})
