"""TrialGangs: opens the gang of a trial's run on the Engine, or finds it again after a restart of the control plane.

Threads: `start` is called on several threads at once, everything else on the supervisor's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trek.control.experiments.parsed_config import parsed_config
from trek.control.layout import Layout
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.cluster_view import ClusterView
from trek.control.trials.elastic_watch import ElasticWatch, run_settings
from trek.control.trials.spool_intake import SpoolIntake
from trek.control.trials.trial_specs import TrialSpecs
from trek.control.trials.worker_changes import num_changes
from trek.elastic.elastic_gang import ElasticGang
from trek.elastic.membership import Change
from trek.elastic.membership_settings import MembershipSettings
from trek.engines import Engine, Exit, Gang, GangSpec
from trek.engines.base import Handle
from trek.engines.handle_file import attach_by_file, write_handle
from trek.errors import InputError
from trek.experiments.trial_process import MASTER_URL
from trek.system.clock import Clock
from trek.train.jobs.servers import restart_server

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenGang:
    """A gang with processes, and who watches its workers if they come and go."""

    gang: Gang
    elastic: ElasticWatch | None = None


class TrialGangs:
    """See the module. `wake` is called when something has happened to a gang."""

    def __init__(
        self,
        store: Store,
        *,
        engine: Engine,
        specs: TrialSpecs,
        cluster: ClusterView,
        layout: Layout,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._specs = specs
        self._cluster = cluster
        self._layout = layout
        self._clock = clock
        self._wake = wake
        self._starting: dict[int, Handle] = {}

    def prepare(self, experiment: ExperimentRow, trial: TrialRow) -> GangSpec:
        """Make the folders of the trial's current run, and write down by what its gang will be found again."""
        spec = self._specs.spec(experiment, trial)
        write_handle(self._specs.handle_file(trial), spec, engine=self._engine)
        self._starting[trial.id] = self._engine.handle_of(spec)
        return spec

    def start(self, experiment: ExperimentRow, trial: TrialRow, spec: GangSpec) -> OpenGang:
        """Start the processes that were prepared; returns when the engine has room for them."""
        try:
            settings = self._membership(experiment, trial)
            if settings is None:
                return OpenGang(self._engine.start(spec, on_exit=self._on_exit))
            return self._watch_elastic(experiment, trial, spec, settings)
        finally:
            self._starting.pop(trial.id, None)

    def start_waits_for(self, trial: TrialRow) -> str:
        """What a `start` under way waits for, in words; empty if it does not wait."""
        handle = self._starting.get(trial.id)
        return "" if handle is None else self._engine.start_waits_for(handle)

    def cancel_start(self, trial: TrialRow) -> None:
        """Have a `start` under way give up if it waits. One that does not wait yet does not hear it."""
        if (handle := self._starting.get(trial.id)) is not None:
            self._engine.cancel_start(handle)

    def attach(self, experiment: ExperimentRow, trial: TrialRow) -> OpenGang | None:
        """The gang of the trial's current run, which an earlier control plane started; None if it never did."""
        found = self._find(experiment, trial)
        if found is not None:
            self._tell_url(found.gang, trial)
        return found

    def _find(self, experiment: ExperimentRow, trial: TrialRow) -> OpenGang | None:
        settings = self._membership(experiment, trial)
        try:
            spec = self._specs.spec(experiment, trial)
            if settings is None:
                return OpenGang(self._attach(trial, spec, self._on_exit))  # with its spec: lost servers are replaced
            return self._watch_elastic(experiment, trial, spec, settings, attach=partial(self._attach, trial))
        except (InputError, FileNotFoundError):
            return None

    def _tell_url(self, gang: Gang, trial: TrialRow) -> None:
        """Tell the processes of a run where this control plane listens: its port may be another."""
        try:
            gang.write_file(MASTER_URL, self._specs.url(trial))
        except OSError as error:  # what one trial put into its folder, or a full disk, must not end the others
            _LOG.error("the processes of trial %d cannot be told the new address: %s", trial.id, error)

    def spool(
        self, experiment: ExperimentRow, trial: TrialRow, gang: Gang, *, ranks: Sequence[int] | None = None
    ) -> SpoolIntake:
        """What takes in the reports that processes of the trial could not send."""
        return SpoolIntake(
            self._store,
            gang,
            trial_id=trial.id,
            run=trial.run,
            storage=self._layout.checkpoints(
                trial, parsed_config(experiment).checkpoint_storage, owner=experiment.owner
            ),
            clock=self._clock,
            ranks=ranks,
        )

    def _attach(self, trial: TrialRow, spec: GangSpec, on_exit: Callable[[Exit], None]) -> Gang:
        return attach_by_file(self._specs.handle_file(trial), spec=spec, on_exit=on_exit, engine=self._engine)

    def _on_exit(self, _: Exit) -> None:
        self._wake()

    def _membership(self, experiment: ExperimentRow, trial: TrialRow) -> MembershipSettings | None:
        num_slots, has_gpus = len(trial.slots), self._cluster.has_gpus
        return run_settings(parsed_config(experiment), num_slots=num_slots, most=num_slots if has_gpus else None)

    def _watch_elastic(
        self,
        experiment: ExperimentRow,
        trial: TrialRow,
        spec: GangSpec,
        settings: MembershipSettings,
        *,
        attach: Callable[[GangSpec, Callable[[Exit], None]], Gang] | None = None,
    ) -> OpenGang:
        with self._store.reading() as session:
            told = num_changes(session, trial_id=trial.id, run=trial.run)

        def open_elastic(on_change: Callable[[Change], None]) -> ElasticGang:
            return ElasticGang(
                self._engine,
                spec,
                settings,
                on_change=on_change,
                on_replace=partial(self._take_spool_of, experiment, trial),
                restart_other=restart_server,
                journal_dir=spec.cwd,
                attach=attach,
                num_changes=told,
            )

        elastic = ElasticWatch(open_elastic, num_workers=len(trial.slots), wake=self._wake)
        return OpenGang(elastic.job.gang, elastic)

    def _take_spool_of(self, experiment: ExperimentRow, trial: TrialRow, gang: Gang, rank: int) -> None:
        """Take what a worker could not report any more before another one has its folder."""
        self.spool(experiment, trial, gang, ranks=[rank]).take_all()
