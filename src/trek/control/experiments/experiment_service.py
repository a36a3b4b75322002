"""ExperimentService: creates, forks, lists, steers, changes and deletes experiments."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import func, select

from trek.client import models
from trek.client.models import ENDED
from trek.client.view_models import ConfigCheck, RungView
from trek.control import views
from trek.control.checkpoints.starting_point import find_starting_point
from trek.control.experiments.archives import Archives
from trek.control.experiments.removal import delete_experiment
from trek.control.experiments.rung_view import rungs_of
from trek.control.layout import Layout
from trek.control.lookup import find_experiment
from trek.control.store import Store, Subject
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.runs import request_change
from trek.control.trials.searching import advance
from trek.control.trials.trial_runner import TrialRunner
from trek.engines.crowding import MAX_PER_CORE, describe_crowding
from trek.errors import ConfigError, InputError
from trek.experiments.config import ExperimentConfig
from trek.experiments.config_merging import with_changes
from trek.experiments.masking import check_unmasked, masked, restored
from trek.experiments.yaml_source import parse_yaml
from trek.system.clock import Clock


class ExperimentService:
    """Experiments of one store. What changes is written there; the runner is woken to act on it."""

    def __init__(self, store: Store, *, archives: Archives, layout: Layout, runner: TrialRunner, clock: Clock) -> None:
        self._store = store
        self._archives = archives
        self._layout = layout
        self._runner = runner
        self._clock = clock

    def version(self, subject: Subject | None = None) -> int:
        """Changes whenever anything about `subject`, or anything at all, may have changed; needs no query."""
        return self._store.num_writes if subject is None else self._store.version(subject)

    def changes(self, since: int) -> tuple[int, list[Subject] | None]:
        """The present version, and what changed after the version `since`; None if anything may have."""
        return self._store.changes(since)

    def create(self, request: models.CreateExperiment, *, owner: str = "") -> models.ExperimentDetails:
        """Check everything, then store the experiment and its first trials in one transaction."""
        if not self._archives.has(request.archive):
            raise InputError(f"the archive {request.archive!r} was not uploaded. Upload it before the experiment.")
        check_unmasked(request.config)
        config = ExperimentConfig.parse(request.config)
        return self._create(config, archive=request.archive, owner=owner, provenance=request.provenance)

    def fork(
        self, experiment_id: int, request: models.ForkExperiment, *, owner: str = "", is_admin: bool = False
    ) -> models.ExperimentDetails:
        """A new experiment with the code and the changed config of another, from the start or its best checkpoint.

        Secrets go to the experiment's owner and admins alone; others give their own, since they may run any code.
        """
        row = self._find(experiment_id)
        config = _forked(row, request, is_own=is_admin or owner == row.owner)
        return self._create(config, archive=row.archive, owner=owner, provenance=row.provenance, parent=experiment_id)

    def check_fork(
        self, experiment_id: int, request: models.ForkExperiment, *, owner: str = "", is_admin: bool = False
    ) -> ConfigCheck:
        """Whether `fork` would accept the request; changes nothing."""
        row = self._find(experiment_id)
        try:
            config = _forked(row, request, is_own=is_admin or owner == row.owner)
            self._check_slots(config)
            self._layout.check(config.checkpoint_storage)
            with self._store.reading() as session:
                find_starting_point(session, config)
        except InputError as error:
            line = re.match(r"config:([0-9]+)", str(error))
            return ConfigCheck(is_valid=False, message=str(error), line=int(line[1]) if line else None)
        return ConfigCheck(is_valid=True, config=masked(config.normal_form()))

    def rungs(self, experiment_id: int) -> list[RungView]:
        """Who came to which rung of the search, and who went on; empty for searchers without rungs."""
        return rungs_of(self._store, experiment_id)

    def _create(
        self,
        config: ExperimentConfig,
        *,
        archive: str,
        owner: str,
        provenance: dict[str, Any],
        parent: int | None = None,
    ) -> models.ExperimentDetails:
        self._check_slots(config)
        self._layout.check(config.checkpoint_storage)
        now_s = self._clock.now_s()
        with self._store.writing() as session:
            # In this transaction: from its end on the checkpoint is needed, and is not removed.
            config = config.model_copy(update={"start_from": find_starting_point(session, config)})
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
                warnings=self._warnings(config),
                created_s=now_s,
            )
            session.add(row)
            session.flush()
            advance(session, row, lambda searcher: searcher.start(), now_s=now_s)
        self._runner.wake()
        return self.get(row.id)

    def all(self, *, limit: int | None = None, before: int | None = None) -> list[models.ExperimentRecord]:
        """Experiments, the newest first: at most `limit`, with ids below `before`."""
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

    def get(self, experiment_id: int) -> models.ExperimentDetails:
        """One experiment with its trials."""
        with self._store.reading() as session:
            row = find_experiment(session, experiment_id)
            trials = session.scalars(
                select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id)
            ).all()
        return views.experiment_details(row, list(trials))

    def owner(self, experiment_id: int) -> str:
        """Who created the experiment."""
        with self._store.reading() as session:
            return find_experiment(session, experiment_id).owner

    def kill(self, experiment_id: int) -> models.ExperimentDetails:
        """End an experiment; one that has ended stays as it is."""
        return self._request(experiment_id, "kill")

    def pause(self, experiment_id: int) -> models.ExperimentDetails:
        """Let running trials save and release their slots; none starts until the experiment is activated."""
        return self._request(experiment_id, "pause")

    def activate(self, experiment_id: int) -> models.ExperimentDetails:
        """Let a paused experiment run again."""
        return self._request(experiment_id, "run")

    def change(self, experiment_id: int, change: models.ChangeExperiment) -> models.ExperimentDetails:
        """Rename, describe, label, archive or reschedule an experiment."""
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
        self._runner.wake()
        return self.get(experiment_id)

    def delete(self, experiment_id: int) -> None:
        """Delete an ended experiment with all its records and files, unless its checkpoints are still needed."""
        with self._store.writing() as session:
            row = find_experiment(session, experiment_id)
            if row.state not in ENDED:
                raise InputError(f"experiment {experiment_id} is {row.state}. Kill it before deleting it.")
            files = delete_experiment(session, row, layout=self._layout)
        files.remove()

    def _find(self, experiment_id: int) -> ExperimentRow:
        with self._store.reading() as session:
            return find_experiment(session, experiment_id)

    def _request(self, experiment_id: int, wanted: str) -> models.ExperimentDetails:
        with self._store.writing() as session:
            row = find_experiment(session, experiment_id)
            if row.state not in ENDED:
                request_change(session, row, wanted, now_s=self._clock.now_s())
            elif wanted != "kill":
                raise InputError(f"experiment {experiment_id} is already {row.state}. Fork or continue it instead.")
        self._runner.wake()
        return self.get(experiment_id)

    def _check_slots(self, config: ExperimentConfig) -> None:
        if config.engine not in (None, self._runner.engine_name):
            raise ConfigError(
                f"engine is {config.engine!r}, but this control plane runs trials on {self._runner.engine_name!r}. "
                f"Start a master with `trek up --engine {config.engine}`; or, if a command started this one, end it "
                "with `trek cluster stop` and create the experiment again."
            )
        wanted, have = config.resources.least_slots, self._runner.slots
        if self._runner.can_grow:
            return
        if wanted > have and self._runner.has_gpus:
            raise ConfigError(
                f"resources.slots_per_trial needs {wanted} GPUs, but this machine has {have}. Lower slots_per_trial."
            )
        if wanted > have * MAX_PER_CORE:
            raise ConfigError(
                f"resources.slots_per_trial needs {wanted} slots, but this machine has {have} (CPU cores), and at most "
                f"{MAX_PER_CORE} processes may share one. Lower slots_per_trial."
            )

    def _warnings(self, config: ExperimentConfig) -> list[str]:
        """Those of the config, and what the slots here do to it."""
        is_shared = not (self._runner.can_grow or self._runner.has_gpus)
        crowding = describe_crowding(config.resources.least_slots, slots=self._runner.slots) if is_shared else ""
        return [*config.warnings(), *([f"resources.slots_per_trial: {crowding}"] if crowding else [])]


def _forked(row: ExperimentRow, request: models.ForkExperiment, *, is_own: bool) -> ExperimentConfig:
    """The config of a fork of `row`. Variables in edited text are not those of the control plane's environment."""
    base = row.config if is_own else masked(row.config)
    start = {"start_from": f"experiment:{row.id}"} if request.is_continued else {}
    if request.config is None:
        config = with_changes(base, {**start, **request.changes})
        check_unmasked(config)
        return ExperimentConfig.parse(config)
    source = parse_yaml(request.config, environ={})
    source.data = with_changes(restored(source.data, base), {**start, **request.changes})
    check_unmasked(source.data)
    return ExperimentConfig.from_source(source)
