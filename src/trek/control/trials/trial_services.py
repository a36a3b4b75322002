"""What can be asked of trials, and what their processes tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select, tuple_
from sqlalchemy.orm import Session

from trek.client import models
from trek.client.models import ENDED
from trek.control import views
from trek.control.logs.query import ANY_LINE, LogSearch
from trek.control.lookup import find_experiment, find_trial
from trek.control.metrics.metric_blocks import groups, points_to_show, rows_at
from trek.control.service_base import ServiceBase
from trek.control.tables import ExperimentRow, LogTable, MetricTable, TrialRow
from trek.control.trials.ingest import take_report
from trek.control.trials.runs import kill_trial
from trek.control.trials.scaling import check_scaling
from trek.control.trials.searching import load_searcher
from trek.errors import InputError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import with_changes


class TrialServices(ServiceBase):
    """Look at trials and end them; take in what they report."""

    def trial(self, trial_id: int) -> models.Trial:
        """One trial."""
        with self._store.reading() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
        return views.trial(trial, experiment, unit=views.unit_of(experiment))

    def trials(self, experiment_id: int, *, limit: int | None = None, after: int = 0) -> list[models.Trial]:
        """Trials of an experiment in the order they were made: `limit` of them, with ids above `after`."""
        with self._store.reading() as session:
            experiment = find_experiment(session, experiment_id)
            query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.id > after)
            rows = session.scalars(query.order_by(TrialRow.id).limit(limit)).all()
        unit = views.unit_of(experiment)
        return [views.trial(row, experiment, unit=unit) for row in rows]

    def metric_page(
        self, trial_id: int, *, group: str | None = None, limit: int, after: tuple[float, str] | None = None
    ) -> list[models.MetricPoint]:
        """Reports by group and then in order, as they are kept: `limit` of them, past the batches and group `after`."""
        query = select(MetricTable).where(MetricTable.trial_id == trial_id)
        if group is not None:
            query = query.where(MetricTable.group == group)
        if after is not None:
            batches, last_group = after
            query = query.where(tuple_(MetricTable.group, MetricTable.batches) > tuple_(last_group, int(batches)))
        with self._store.reading() as session:
            find_trial(session, trial_id)
            rows = session.scalars(query.order_by(MetricTable.group, MetricTable.batches).limit(limit)).all()
        return [views.metric(row) for row in rows]

    def metrics(
        self, trial_id: int, *, group: str | None = None, max_points: int | None = None
    ) -> list[models.MetricPoint]:
        """A trial's reports, in order; with `max_points`, at most about so many of each group, every extreme kept."""
        with self._store.reading() as session:
            find_trial(session, trial_id)
            names = [group] if group is not None else groups(session, trial_id)
            rows = [row for name in names for row in _series(session, trial_id, name, max_points=max_points)]
        return [views.metric(row) for row in sorted(rows, key=lambda row: (row.batches, row.group))]

    def logs(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        search: LogSearch = ANY_LINE,
    ) -> list[models.LogLine]:
        """Lines after the cursor `after` that `search` is after, oldest first; with `tail` the last so many."""
        with self._store.reading() as session:
            query = select(LogTable).where(LogTable.id > after, *search.conditions())
            if trial_id is not None:
                find_trial(session, trial_id)
                query = query.where(LogTable.trial_id == trial_id)
            if experiment_id is not None:
                find_experiment(session, experiment_id)
                owned = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)
                query = query.where(LogTable.trial_id.in_(owned))
            if tail is not None:
                rows = session.scalars(query.order_by(LogTable.id.desc()).limit(tail)).all()[::-1]
            else:
                rows = session.scalars(query.order_by(LogTable.id).limit(limit)).all()
        return [views.log_line(row) for row in rows]

    def assignment(self, trial_id: int, *, run: int) -> models.Assignment:
        """What the processes of a trial's run need; refused to a run that was replaced."""
        with self._store.reading() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
            if trial.run != run or trial.state != "running":
                raise InputError(f"run {run} of trial {trial_id} is over; the trial is {trial.state}.")
        config = ExperimentConfig.parse(experiment.config)
        folder = self._layout.checkpoints(experiment.id, trial.id, config.checkpoint_storage)
        return models.Assignment(
            trial_id=trial.id,
            experiment_id=experiment.id,
            run=run,
            config=with_changes(experiment.config, {"resources.slots_per_trial": len(trial.slots)}),
            hparams=trial.hparams,
            seed=trial.seed,
            length={config.searcher.max_length.unit: trial.length},
            validation_period=_validation_period(config, experiment),
            archive=experiment.archive,
            checkpoint_dir=folder,
            resume=trial.start_checkpoint,
            name=f"{experiment.name}/{trial.id}",
        )

    def report(self, trial_id: int, report: models.Report) -> models.ReportReply:
        """Take in what a trial tells."""
        is_empty = not (report.metrics or report.checkpoints or report.deleted_checkpoints or report.progress)
        with self._store.reading() if is_empty else self._store.writing() as session:
            reply = take_report(session, find_trial(session, trial_id), report)
        if report.metrics:
            self._supervisor.wake()
        return reply

    def kill_trial(self, trial_id: int) -> models.Trial:
        """End one trial; to its searcher it counts as failed."""
        with self._store.writing() as session:
            trial = find_trial(session, trial_id)
            if trial.state not in ENDED:
                kill_trial(session, trial)
        self._supervisor.wake()
        return self.trial(trial_id)

    def scale_trial(self, trial_id: int, *, slots: int) -> models.Trial:
        """Give a trial another number of slots: one that runs saves and goes on from there, which is no restart."""
        with self._store.writing() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
            check_scaling(trial, experiment, slots=slots, cluster_slots=self._supervisor.slots)
            trial.num_slots = slots
        self._supervisor.wake()
        return self.trial(trial_id)

    def jobs(self) -> list[models.Job]:
        """Trials that run, then those that wait, in the order the scheduler takes them."""
        with self._store.reading() as session:
            rows = session.execute(
                select(TrialRow, ExperimentRow)
                .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
                .where(TrialRow.state.in_(["running", "queued"]))
            ).all()
        jobs = [views.job(trial, experiment) for trial, experiment in rows]
        return sorted(jobs, key=lambda job: (job.state != "running", job.priority, job.trial_id))


def _series(session: Session, trial_id: int, group: str, *, max_points: int | None) -> Sequence[MetricTable | Row[Any]]:
    chosen = points_to_show(session, trial_id, group, max_points=max_points) if max_points is not None else None
    if chosen is not None:
        return rows_at(session, trial_id, group, chosen)
    return session.scalars(
        select(MetricTable).where(MetricTable.trial_id == trial_id, MetricTable.group == group)
    ).all()


def _validation_period(config: ExperimentConfig, experiment: ExperimentRow) -> dict[str, int] | None:
    """The config's, but never longer than the Searcher's first rung, which has to be judged."""
    own = config.training.validation_period
    rung = next(iter(load_searcher(experiment).rung_lengths), None)
    unit = config.searcher.max_length.unit
    if rung is None or (own is not None and own.unit == unit and own.count <= rung):
        return {own.unit: own.count} if own is not None else None
    return {unit: rung}
