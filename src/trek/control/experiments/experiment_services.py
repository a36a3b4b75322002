"""What can be asked of experiments."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import func, select

from trek.client import models
from trek.client.models import ENDED
from trek.control import views
from trek.control.experiments.archives import Archives
from trek.control.experiments.removal import delete_experiment, remove_folders
from trek.control.layout import Layout
from trek.control.lookup import find_experiment
from trek.control.service_base import ServiceBase
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.control.trials.runs import ask
from trek.control.trials.searching import advance
from trek.control.trials.supervisor import Supervisor
from trek.errors import ConfigError, InputError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import with_changes


class ExperimentServices(ServiceBase):
    """Create, look at, steer and delete experiments."""

    def __init__(self, store: Store, *, layout: Layout, supervisor: Supervisor) -> None:
        super().__init__(store, layout=layout, supervisor=supervisor)
        self.archives = Archives(store, folder=layout.archives)

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
            row = find_experiment(session, experiment_id)
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
            winners = select(TrialRow.id, TrialRow.hparams).where(TrialRow.id.in_([row.best_trial for row in rows]))
            best: dict[int | None, Any] = {one.id: one.hparams for one in session.execute(winners)}
        return [
            views.experiment(row, num_trials=counts.get(row.id, 0), best_hparams=best.get(row.best_trial, {}))
            for row in rows
        ]

    def experiment(self, experiment_id: int) -> models.ExperimentDetails:
        """One experiment with its trials."""
        with self._store.reading() as session:
            row = find_experiment(session, experiment_id)
            trials = session.scalars(
                select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id)
            ).all()
        return views.experiment_details(row, list(trials))

    def owner(self, experiment_id: int) -> str:
        """Whose experiment it is."""
        with self._store.reading() as session:
            return find_experiment(session, experiment_id).owner

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
            row = find_experiment(session, experiment_id)
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
            row = find_experiment(session, experiment_id)
            if row.state not in ENDED:
                raise InputError(f"experiment {experiment_id} is {row.state}. Kill it before deleting it.")
            folders = delete_experiment(session, row, layout=self._layout)
        remove_folders(folders)

    def _ask(self, experiment_id: int, wanted: str) -> models.ExperimentDetails:
        with self._store.writing() as session:
            row = find_experiment(session, experiment_id)
            if row.state not in ENDED:
                ask(session, row, wanted)
            elif wanted != "kill":
                raise InputError(f"experiment {experiment_id} is {row.state} already. Fork or continue it instead.")
        self._supervisor.wake()
        return self.experiment(experiment_id)

    def _check_slots(self, config: ExperimentConfig) -> None:
        wanted, have = config.resources.slots_per_trial, self._supervisor.slots
        if wanted > have and self._supervisor.has_gpus:
            raise ConfigError(
                f"resources.slots_per_trial is {wanted}, and this machine has {have} GPUs. Lower slots_per_trial."
            )
