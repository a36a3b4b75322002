"""What can be asked of the control plane. Routes and tests call these; none of them knows HTTP."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trek.client import models
from trek.client.models import ENDED
from trek.control import views
from trek.control.archives import Archives
from trek.control.ingest import newest_checkpoint, take_report
from trek.control.layout import Layout
from trek.control.removal import delete_experiment, needed_paths, remove_folders
from trek.control.runs import ask, kill_trial
from trek.control.searching import advance, load_searcher
from trek.control.store import Store
from trek.control.supervisor import Supervisor
from trek.control.tables import CheckpointTable, ExperimentRow, LogTable, MetricTable, TrialRow
from trek.errors import ConfigError, InputError, NotFound
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import with_changes


class Services:
    """The control plane's verbs."""

    def __init__(self, store: Store, *, layout: Layout, supervisor: Supervisor) -> None:
        self._store = store
        self._layout = layout
        self._supervisor = supervisor
        self.archives = Archives(store, folder=layout.archives)

    # experiments

    def create_experiment(self, request: models.CreateExperiment, *, owner: str = "") -> models.ExperimentDetails:
        """Check everything, then store the experiment and its first trials in one transaction."""
        if not self.archives.has(request.archive):
            raise InputError(f"the archive {request.archive!r} was not uploaded. Upload it before the experiment.")
        return self._create(
            ExperimentConfig.parse(request.config), archive=request.archive, owner=owner, provenance=request.provenance
        )

    def fork_experiment(
        self, experiment_id: int, request: models.ForkExperiment, *, owner: str = ""
    ) -> models.ExperimentDetails:
        """A new experiment of one that exists, from the start or from its best trial's newest checkpoint."""
        with self._store.reading() as session:
            row = _experiment(session, experiment_id)
            best = session.get(TrialRow, row.best_trial) if row.best_trial is not None else None
            uuid = best.checkpoint if best is not None else None
            path = session.get_one(CheckpointTable, uuid).path if uuid is not None else None
        if request.is_continued and path is None:
            raise InputError(f"experiment {experiment_id} has no checkpoint to continue from. Fork it instead.")
        config = ExperimentConfig.parse(with_changes(row.config, request.changes))
        start = path if request.is_continued else None
        return self._create(
            config, archive=row.archive, owner=owner, provenance=row.provenance, parent=experiment_id, start=start
        )

    def _create(
        self,
        config: ExperimentConfig,
        *,
        archive: str,
        owner: str,
        provenance: dict[str, Any],
        parent: int | None = None,
        start: str | None = None,
    ) -> models.ExperimentDetails:
        self._check_slots(config)
        with self._store.writing() as session:
            row = ExperimentRow(
                parent=parent,
                name=config.name,
                description=config.description,
                owner=owner,
                state="queued",
                search_finished=False,
                config=config.normal_form(),
                archive=archive,
                provenance=provenance,
                labels=config.labels,
                warnings=config.warnings(),
                created_s=time.time(),
            )
            session.add(row)
            session.flush()
            advance(session, row, lambda searcher: searcher.start())
            for trial in session.scalars(select(TrialRow).where(TrialRow.experiment_id == row.id)):
                trial.start_checkpoint = start
        self._supervisor.wake()
        return self.experiment(row.id)

    def experiments(self, *, limit: int | None = None, before: int | None = None) -> list[models.Experiment]:
        """Experiments, the newest first: `limit` of them, with ids below `before`."""
        with self._store.reading() as session:
            query = select(ExperimentRow).order_by(ExperimentRow.id.desc()).limit(limit)
            rows = session.scalars(query.where(ExperimentRow.id < before) if before is not None else query).all()
            owned = TrialRow.experiment_id.in_([row.id for row in rows])
            counts: dict[int, int] = dict(
                session.execute(
                    select(TrialRow.experiment_id, func.count()).where(owned).group_by(TrialRow.experiment_id)
                ).all()
            )
        return [views.experiment(row, num_trials=counts.get(row.id, 0)) for row in rows]

    def experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """One experiment with its trials."""
        with self._store.reading() as session:
            row = _experiment(session, experiment_id)
            trials = session.scalars(
                select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id)
            ).all()
        return views.experiment_details(row, list(trials))

    def owner(self, experiment_id: int) -> str:
        """Whose experiment it is."""
        with self._store.reading() as session:
            return _experiment(session, experiment_id).owner

    def kill_experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """End an experiment; one that ended already stays as it is."""
        return self._ask(experiment_id, "kill")

    def pause_experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """Let running trials save and give their slots back; nothing of it starts until it is activated."""
        return self._ask(experiment_id, "pause")

    def activate_experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """Let a paused experiment go on."""
        return self._ask(experiment_id, "run")

    def change_experiment(self, experiment_id: int, change: models.ChangeExperiment) -> models.ExperimentDetails:
        """Name, describe, label or archive an experiment."""
        with self._store.writing() as session:
            row = _experiment(session, experiment_id)
            if change.is_archived and row.state not in ENDED:
                raise InputError(f"experiment {experiment_id} is {row.state}. Kill it before archiving it.")
            changes = change.model_dump(exclude_none=True)
            resources = {name: changes.pop(name) for name in ("priority", "weight", "max_slots") if name in changes}
            if resources:
                row.config = {**row.config, "resources": {**row.config["resources"], **resources}}
            for name, value in changes.items():
                setattr(row, name, sorted(set(value)) if name == "labels" else value)
        self._supervisor.wake()
        return self.experiment(experiment_id)

    def delete_experiment(self, experiment_id: int) -> None:
        """Delete an ended experiment with all its records and files, unless another one starts from its checkpoints."""
        with self._store.writing() as session:
            row = _experiment(session, experiment_id)
            if row.state not in ENDED:
                raise InputError(f"experiment {experiment_id} is {row.state}. Kill it before deleting it.")
            folders = delete_experiment(session, row, layout=self._layout)
        remove_folders(folders)

    def _ask(self, experiment_id: int, wanted: str) -> models.ExperimentDetails:
        with self._store.writing() as session:
            row = _experiment(session, experiment_id)
            if row.state not in ENDED:
                ask(session, row, wanted)
            elif wanted != "kill":
                raise InputError(f"experiment {experiment_id} is {row.state} already. Fork or continue it instead.")
        self._supervisor.wake()
        return self.experiment(experiment_id)

    # trials

    def trial(self, trial_id: int) -> models.Trial:
        """One trial."""
        with self._store.reading() as session:
            trial = _trial(session, trial_id)
            experiment = _experiment(session, trial.experiment_id)
        return views.trial(trial, unit=views.unit_of(experiment))

    def metrics(self, trial_id: int, *, group: str | None = None) -> list[models.MetricPoint]:
        """A trial's reports, in order."""
        with self._store.reading() as session:
            _trial(session, trial_id)
            query = select(MetricTable).where(MetricTable.trial_id == trial_id)
            if group is not None:
                query = query.where(MetricTable.group == group)
            rows = session.scalars(query.order_by(MetricTable.batches, MetricTable.group)).all()
        return [views.metric(row) for row in rows]

    def logs(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        after: int = 0,
        limit: int = 1000,
        tail: int | None = None,
        text: str | None = None,
        rank: int | None = None,
    ) -> list[models.LogLine]:
        """Lines after the cursor `after`, oldest first; with `tail` the last so many, with `text` those with it."""
        with self._store.reading() as session:
            query = select(LogTable).where(LogTable.id > after)
            if text:
                query = query.where(LogTable.text.icontains(text, autoescape=True))
            if rank is not None:
                query = query.where(LogTable.rank == rank)
            if trial_id is not None:
                _trial(session, trial_id)
                query = query.where(LogTable.trial_id == trial_id)
            if experiment_id is not None:
                _experiment(session, experiment_id)
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
            trial = _trial(session, trial_id)
            experiment = _experiment(session, trial.experiment_id)
            if trial.run != run or trial.state != "running":
                raise InputError(f"run {run} of trial {trial_id} is over; the trial is {trial.state}.")
        config = ExperimentConfig.parse(experiment.config)
        folder = self._layout.checkpoints(experiment.id, trial.id, config.checkpoint_storage)
        return models.Assignment(
            trial_id=trial.id,
            experiment_id=experiment.id,
            run=run,
            config=experiment.config,
            hparams=trial.hparams,
            seed=trial.seed,
            length={config.searcher.max_length.unit: trial.length},
            validation_period=_validation_period(config, experiment),
            archive=experiment.archive,
            checkpoint_dir=str(folder),
            resume=trial.start_checkpoint,
            name=f"{experiment.name}/{trial.id}",
        )

    def report(self, trial_id: int, report: models.Report) -> models.ReportReply:
        """Take in what a trial tells."""
        is_empty = not (report.metrics or report.checkpoints or report.deleted_checkpoints or report.progress)
        with self._store.reading() if is_empty else self._store.writing() as session:
            reply = take_report(session, _trial(session, trial_id), report)
        if report.metrics:
            self._supervisor.wake()
        return reply

    def kill_trial(self, trial_id: int) -> models.Trial:
        """End one trial; to its searcher it counts as failed."""
        with self._store.writing() as session:
            trial = _trial(session, trial_id)
            if trial.state not in ENDED:
                kill_trial(session, trial)
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

    # checkpoints

    def checkpoints(self, *, experiment_id: int | None = None, trial_id: int | None = None) -> list[models.Checkpoint]:
        """Checkpoints that are still there, the newest first."""
        with self._store.reading() as session:
            query = select(CheckpointTable, TrialRow.experiment_id).join(TrialRow).where(~CheckpointTable.is_deleted)
            if experiment_id is not None:
                _experiment(session, experiment_id)
                query = query.where(TrialRow.experiment_id == experiment_id)
            if trial_id is not None:
                _trial(session, trial_id)
                query = query.where(CheckpointTable.trial_id == trial_id)
            rows = session.execute(query.order_by(CheckpointTable.time_s.desc())).all()
        return [views.checkpoint(row, experiment_id=owner) for row, owner in rows]

    def checkpoint(self, uuid: str) -> models.Checkpoint:
        """One checkpoint; `uuid` may be shortened as long as it names one."""
        with self._store.reading() as session:
            row = _checkpoint(session, uuid)
            owner = session.get_one(TrialRow, row.trial_id).experiment_id
        return views.checkpoint(row, experiment_id=owner)

    def checkpoint_folder(self, uuid: str) -> Path:
        """Where a checkpoint's files are."""
        found = self.checkpoint(uuid)
        if found.is_deleted or not Path(found.path).is_dir():
            raise NotFound(f"the files of checkpoint {found.uuid} were deleted.")
        return Path(found.path)

    def delete_checkpoint(self, uuid: str) -> models.Checkpoint:
        """Delete a checkpoint's files; refused while its trial may still need it."""
        with self._store.writing() as session:
            row = _checkpoint(session, uuid)
            trial = session.get_one(TrialRow, row.trial_id)
            if trial.state not in ENDED:
                raise InputError(f"trial {trial.id} is {trial.state} and may go on from checkpoint {row.uuid}.")
            if row.path in needed_paths(session):
                raise InputError(f"checkpoint {row.uuid} is a version of a model, or a trial starts from it.")
            row.is_deleted = True
            trial.checkpoint = newest_checkpoint(session, trial.id)
        remove_folders([Path(row.path)])
        return self.checkpoint(row.uuid)

    # cluster

    def cluster(self, *, version: str, pid: int) -> models.ClusterInfo:
        """The control plane and what it runs."""
        trials = self.counts()["trials"]
        return models.ClusterInfo(
            version=version,
            pid=pid,
            slots=self.num_slots,
            free_slots=self.num_free_slots,
            running_trials=trials.get("running", 0),
            queued_trials=trials.get("queued", 0),
            active_experiments=self.num_active(),
        )

    @property
    def num_slots(self) -> int:
        """Processes that can train at once."""
        return self._supervisor.slots

    @property
    def num_free_slots(self) -> int:
        """Slots that no trial holds."""
        return self._supervisor.free_slots

    def counts(self) -> dict[str, dict[str, int]]:
        """Experiments and trials by state, and how much is kept."""
        with self._store.reading() as session:
            counts: dict[str, dict[str, int]] = {
                name: dict(session.execute(select(table.state, func.count()).group_by(table.state)).all())
                for name, table in (("experiments", ExperimentRow), ("trials", TrialRow))
            }
            size = select(func.sum(CheckpointTable.num_bytes)).where(~CheckpointTable.is_deleted)
            counts["rows"] = {
                "metrics": session.scalar(select(func.count()).select_from(MetricTable)) or 0,
                "checkpoint_bytes": int(session.scalar(size) or 0),
            }
        return counts

    def num_active(self) -> int:
        """Experiments that run or wait to."""
        with self._store.reading() as session:
            query = select(func.count()).select_from(ExperimentRow)
            return session.scalar(query.where(ExperimentRow.state.in_(["queued", "running"]))) or 0

    def _check_slots(self, config: ExperimentConfig) -> None:
        wanted, have = config.resources.slots_per_trial, self._supervisor.slots
        if wanted > have and self._supervisor.has_gpus:
            raise ConfigError(
                f"resources.slots_per_trial is {wanted}, and this machine has {have} GPUs. Lower slots_per_trial."
            )


def _experiment(session: Session, experiment_id: int) -> ExperimentRow:
    row = session.get(ExperimentRow, experiment_id)
    if row is None:
        raise NotFound(f"experiment {experiment_id} does not exist. See `trek experiment list`.")
    return row


def _trial(session: Session, trial_id: int) -> TrialRow:
    row = session.get(TrialRow, trial_id)
    if row is None:
        raise NotFound(f"trial {trial_id} does not exist. See `trek experiment describe`.")
    return row


def _checkpoint(session: Session, uuid: str) -> CheckpointTable:
    found = session.scalars(
        select(CheckpointTable).where(CheckpointTable.uuid.startswith(uuid, autoescape=True)).limit(2)
    ).all()
    if len(found) != 1:
        problem = "names more than one checkpoint. Give more of it" if found else "does not exist"
        raise NotFound(f"checkpoint {uuid!r} {problem}.")
    return found[0]


def _validation_period(config: ExperimentConfig, experiment: ExperimentRow) -> dict[str, int] | None:
    """The config's, but never longer than the Searcher's first rung, which has to be judged."""
    own = config.min_validation_period
    rung = next(iter(load_searcher(experiment).rung_lengths), None)
    unit = config.searcher.max_length.unit
    if rung is None or (own is not None and own.unit == unit and own.count <= rung):
        period: dict[str, Any] | None = own.model_dump() if own is not None else None
        return period
    return {unit: rung}
