"""TrialService: trials, their metrics, and what their processes ask and report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select, tuple_
from sqlalchemy.orm import Session

from trek.client import models
from trek.client.models import ENDED
from trek.client.view_models import TrialEvent
from trek.control import views
from trek.control.checkpoints.checkpoint_rows import stored_checkpoints
from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.lookup import find_experiment, find_trial
from trek.control.metrics.metric_blocks import groups, points_to_show, rows_at
from trek.control.store import Store, Subject
from trek.control.tables import ExperimentRow, MetricTable, TrialRow
from trek.control.trials.ingest import take_report
from trek.control.trials.runs import kill_trial
from trek.control.trials.scaling import check_scaling
from trek.control.trials.searching import load_searcher
from trek.control.trials.slot_ranges import is_elastic
from trek.control.trials.trial_history import history_of
from trek.control.trials.trial_runner import TrialRunner
from trek.control.trials.worker_changes import all_changes
from trek.errors import InputError, RunEnded
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import with_changes
from trek.experiments.system_metrics import GROUP as SYSTEM
from trek.system.clock import Clock


class TrialService:
    """Trials of one store."""

    def __init__(self, store: Store, *, layout: Layout, runner: TrialRunner, clock: Clock) -> None:
        self._store = store
        self._layout = layout
        self._runner = runner
        self._clock = clock

    def get(self, trial_id: int) -> models.TrialRecord:
        """One trial."""
        with self._store.reading() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
        return views.trial(trial, experiment)

    def all(self, experiment_id: int, *, limit: int | None = None, after: int = 0) -> list[models.TrialRecord]:
        """Trials of an experiment in the order they were created: at most `limit`, with ids above `after`."""
        with self._store.reading() as session:
            experiment = find_experiment(session, experiment_id)
            query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.id > after)
            rows = session.scalars(query.order_by(TrialRow.id).limit(limit)).all()
        return [views.trial(row, experiment) for row in rows]

    def metric_page(
        self, trial_id: int, *, group: str | None = None, limit: int, after: tuple[float, str] | None = None
    ) -> list[models.MetricPoint]:
        """Reports ordered by group and batches, as stored: at most `limit`, past the batches and group in `after`.

        What Trek measures of the machine is given only by the name of its group.
        """
        query = select(MetricTable).where(MetricTable.trial_id == trial_id)
        if group is not None:
            query = query.where(MetricTable.group == group)
        else:
            query = query.where(~MetricTable.group.startswith(SYSTEM, autoescape=True))
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
        """A trial's reports in order; with `max_points`, about that many of each group, every extreme included."""
        with self._store.reading() as session:
            find_trial(session, trial_id)
            own = [name for name in groups(session, trial_id) if not name.startswith(SYSTEM)] if group is None else []
            names = [group] if group is not None else own
            rows = [row for name in names for row in _series(session, trial_id, name, max_points=max_points)]
        return [views.metric(row) for row in sorted(rows, key=lambda row: (row.batches, row.group))]

    def assignment(self, trial_id: int, *, run: int) -> models.Assignment:
        """What the processes of a trial's run need to train; refused to a run that was replaced."""
        with self._store.reading() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
            if trial.run != run or trial.state != "running":
                raise InputError(f"run {run} of trial {trial_id} has ended; the trial is {trial.state}.")
            siblings = select(TrialRow.uuid).where(TrialRow.experiment_id == experiment.id)
            first = session.scalar(siblings.order_by(TrialRow.id).limit(1))
            known = stored_checkpoints(session, trial.id)
        config = parsed_config(experiment)
        storage = self._layout.checkpoints(trial, config.checkpoint_storage, owner=experiment.owner)
        return models.Assignment(
            trial_id=trial.id,
            experiment_id=experiment.id,
            run=run,
            config=_assigned_config(trial, experiment),
            hparams=trial.hparams,
            seed=trial.seed,
            length={config.searcher.length.unit: trial.length},
            validation_lengths=_validation_lengths(config, experiment, trial),
            archive=experiment.archive,
            checkpoint_dir=storage.address,
            owner=trial.uuid,
            experiment_key=first or "",
            resume=trial.start_checkpoint,
            checkpoints=known,
            name=f"{experiment.name}/{trial.id}",
        )

    def check_current(self, trial_id: int, *, run: int | None) -> None:
        """RunEnded unless `run` is the current run of the trial, and is running."""
        with self._store.reading() as session:
            row = session.execute(select(TrialRow.run, TrialRow.state).where(TrialRow.id == trial_id)).one_or_none()
        if row is None or row.run != run or row.state != "running":
            state = "was deleted" if row is None else f"is {row.state} in run {row.run}"
            raise RunEnded(f"the token of run {run} of trial {trial_id} is no longer valid: the trial {state}.")

    def archive(self, trial_id: int) -> str:
        """The sha256 of the archive with the trial's code."""
        with self._store.reading() as session:
            return find_experiment(session, find_trial(session, trial_id).experiment_id).archive

    def report(self, trial_id: int, report: models.Report) -> models.ReportReply:
        """Store what a trial reports, and say whether it should stop."""
        is_empty = not (report.metrics or report.checkpoints or report.progress)
        if report.checkpoints:
            self._check_places(trial_id, report)
        changed: list[Subject] = []
        with self._store.reading() if is_empty else self._store.writing(about=changed) as session:
            trial = find_trial(session, trial_id)
            changed += [("metrics", trial_id), ("experiment", trial.experiment_id)]
            reply = take_report(session, trial, report, now_s=self._clock.now_s())
        if report.metrics or report.checkpoints:
            self._runner.wake()
        return reply

    def _check_places(self, trial_id: int, report: models.Report) -> None:
        """Outside of the transaction that stores the report, since links are resolved on the disk."""
        with self._store.reading() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
        config = parsed_config(experiment)
        storage = self._layout.checkpoints(trial, config.checkpoint_storage, owner=experiment.owner)
        for checkpoint in report.checkpoints:
            storage.check(checkpoint.path)

    def history(self, trial_id: int) -> list[TrialEvent]:
        """What happened to the trial, the oldest first."""
        return history_of(self._store, trial_id)

    def kill(self, trial_id: int) -> models.TrialRecord:
        """End one trial; its searcher counts it as failed."""
        with self._store.writing() as session:
            trial = find_trial(session, trial_id)
            if trial.state not in ENDED:
                kill_trial(session, trial, now_s=self._clock.now_s())
        self._runner.wake()
        return self.get(trial_id)

    def scale(self, trial_id: int, *, slots: int) -> models.TrialRecord:
        """Change a trial's number of slots; it does not count as restarted.

        A running one saves and resumes with them. An elastic one goes on with as many workers as are free.
        """
        with self._store.writing() as session:
            trial = find_trial(session, trial_id)
            experiment = find_experiment(session, trial.experiment_id)
            most = None if self._runner.can_grow else self._runner.slots
            check_scaling(trial, experiment, slots=slots, cluster_slots=most)
            trial.num_slots = slots
        self._runner.wake()
        return self.get(trial_id)

    def worker_changes(self, trial_id: int) -> list[models.WorkerChange]:
        """Which workers of an elastic trial joined and left, and why; nothing for other trials."""
        with self._store.reading() as session:
            find_trial(session, trial_id)
            return [views.worker_change(row) for row in all_changes(session, trial_id)]

    def jobs(self) -> list[models.Job]:
        """Running trials, then queued ones in the order the scheduler starts them."""
        with self._store.reading() as session:
            rows = session.execute(
                select(TrialRow, ExperimentRow)
                .join(ExperimentRow, TrialRow.experiment_id == ExperimentRow.id)
                .where(TrialRow.state.in_(["running", "queued"]))
            ).all()
        jobs = [views.job(trial, experiment) for trial, experiment in rows]
        return sorted(jobs, key=lambda job: (job.state != "running", job.priority, job.trial_id))


def _assigned_config(trial: TrialRow, experiment: ExperimentRow) -> dict[str, Any]:
    """The config with the number of slots that the run has; that of an elastic one may change."""
    if is_elastic(experiment):
        return experiment.config
    return with_changes(experiment.config, {"resources.slots_per_trial": len(trial.slots)})


def _series(session: Session, trial_id: int, group: str, *, max_points: int | None) -> Sequence[MetricTable | Row[Any]]:
    chosen = points_to_show(session, trial_id, group, max_points=max_points) if max_points is not None else None
    if chosen is not None:
        return rows_at(session, trial_id, group, chosen)
    return session.scalars(
        select(MetricTable).where(MetricTable.trial_id == trial_id, MetricTable.group == group)
    ).all()


def _validation_lengths(config: ExperimentConfig, experiment: ExperimentRow, trial: TrialRow) -> list[dict[str, int]]:
    """The rungs of the trial up to the length that it trains to next."""
    unit = config.searcher.length.unit
    lengths = load_searcher(experiment).lengths_of(trial.key)
    return [{unit: length} for length in lengths if length <= trial.length]
