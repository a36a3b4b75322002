"""Opens the loop of a run: makes its parts from its settings, and chooses the variants that its job needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any

from trek.elastic.joining import elastic_world, is_elastic, open_member
from trek.errors import ConfigError
from trek.strategies import Strategy
from trek.strategies.regrouping import Regrouping
from trek.strategies.strategy_registry import default_strategy, open_elastic_strategy, open_strategy
from trek.train.checkpointing.archive import Archive
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.stores import Storage
from trek.train.folders import job_key, leaders_places
from trek.train.loggers.base import JobIdentity, Logger
from trek.train.loggers.choice import LoggerChoice, open_loggers
from trek.train.loop.data_wait import DataWait
from trek.train.loop.elastic_group import ElasticGroup
from trek.train.loop.feed import Feed
from trek.train.loop.instruments import Instruments
from trek.train.loop.leased_loop import LeasedLoop
from trek.train.loop.logical_workers import LogicalWorkers
from trek.train.loop.optimization import Optimization
from trek.train.loop.precision import open_precision
from trek.train.loop.run_state import RunState
from trek.train.loop.stop_agreement import StopAgreement
from trek.train.loop.stopping import StopRequest
from trek.train.loop.training_loop import TrainingLoop
from trek.train.loop.worker_group import WorkerGroup
from trek.train.metrics.journal import Journal
from trek.train.settings import TrainSettings
from trek.train.trial_host import TrialHost
from trek.world import World
from trek.world.seeds import seed_everything


def open_loop(
    settings: TrainSettings,
    *,
    world: World,
    stop: StopRequest,
    on_signals: AbstractContextManager[Any],
    host: TrialHost | None,
    folder: Path | str | None,
    checkpoint_dir: Path | str | Storage | None,
    resume: CheckpointFolder | Path | str | None,
    loggers: Sequence[Logger],
    logger_names: Sequence[LoggerChoice],
    trial: Mapping[str, Any] | None,
    owner: str | None,
    job: JobIdentity | None,
    wait: DataWait | None,
) -> TrainingLoop:
    """The loop of this rank, connected to the other ranks; a worker of an elastic job joins them with `restore`."""
    strategy, group = _open_group(settings, world=world, stop=stop)
    has_folder, place = folder is not None, checkpoint_dir
    if host is None:
        folder, place = leaders_places(strategy, folder or Path.cwd(), checkpoint_dir)
    home = Path(folder or Path.cwd())
    settings = settings.with_default_paths(home)
    seed_everything(settings.seed)

    @cache
    def own_job() -> JobIdentity:
        """Which job the run belongs to, on the leader: that of the run which "latest" resumes."""
        if job is not None:
            return job
        found = archive.found_job if loop.resumes_latest else ""
        return JobIdentity(key=found or job_key(home if has_folder else None))

    leases = isinstance(strategy, Regrouping) and strategy.leases_work
    journal = Journal(
        strategy,
        loggers=loggers,
        open_more=partial(open_loggers, [*settings.loggers, *logger_names], folder=home),
        on_nan=settings.on_nan,
        find_job=own_job,
    )
    archive = Archive(
        place,
        strategy=strategy,
        journal=journal,
        policy=_keep_policy(settings) if owner is None else None,
        trial=trial,
        owner=owner,
        find_job=lambda: own_job().key,
    )
    feed = Feed(strategy, accumulate=settings.accumulate, wait=wait)
    loop = (LeasedLoop if leases else TrainingLoop)(
        settings,
        strategy=strategy,
        group=group,
        state=_open_state(settings, strategy=strategy, group=group, stop=stop, journal=journal, feed=feed),
        archive=archive,
        instruments=Instruments(settings, world=world),
        stop=stop,
        on_signals=on_signals,
        host=host,
        folder=home,
        resume=resume,
    )
    if group.is_elastic:
        journal.hold_batches()
        loop.close_at_exit()
    return loop


def _open_group(settings: TrainSettings, *, world: World, stop: StopRequest) -> tuple[Strategy, WorkerGroup]:
    """How the ranks stay together, and who they are."""
    options = settings.strategy_options
    if not is_elastic():
        fixed = open_strategy(settings.strategy or default_strategy(world.size), world, **options)
        fixed.setup()
        return fixed, WorkerGroup()
    if settings.on_hang != "report":
        raise ConfigError(
            f"on_hang={settings.on_hang!r} needs a fixed number of workers: an elastic run evicts a worker that hangs. "
            "Leave it out."
        )
    world, is_exact = elastic_world(world), settings.elastic == "exact"
    strategy = open_elastic_strategy(settings.strategy, world, is_exact=is_exact, options=options)
    strategy.setup()
    return strategy, ElasticGroup(open_member(world), strategy, stop=stop)


def _open_state(
    settings: TrainSettings,
    *,
    strategy: Strategy,
    group: WorkerGroup,
    stop: StopRequest,
    journal: Journal,
    feed: Feed,
) -> RunState:
    leases = isinstance(strategy, Regrouping) and strategy.leases_work
    optimization = Optimization(
        strategy,
        open_precision(settings.precision, strategy.world.device),
        group=None if leases else group,  # workers that lease do not step together
        clip_norm=settings.clip_norm,
        clip_value=settings.clip_value,
        compiled=settings.compile,
        ema_decay=settings.ema_decay,
    )
    optimization.counts_own_steps = not leases
    logical: LogicalWorkers | None = None
    if isinstance(strategy, Regrouping) and strategy.exact is not None:
        logical = LogicalWorkers(strategy, models=optimization.models, seed=settings.seed)
    return RunState(
        strategy,
        seed=settings.seed,
        optimization=optimization,
        feed=feed,
        journal=journal,
        agreement=StopAgreement(strategy, stop, group=group),
        logical=logical,
    )


def _keep_policy(settings: TrainSettings) -> KeepPolicy:
    return KeepPolicy(best=settings.keep_best, last=settings.keep_last, every=settings.keep_every)
