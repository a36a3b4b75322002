"""RunParts: what a training loop works with, made from its settings, opened and closed together.

The loop itself is the Traveler's, which is a RunParts.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from trek.data.loaders import Loader, as_loader
from trek.elastic.joining import elastic_world, is_elastic, job_started_s, open_member
from trek.errors import InputError
from trek.strategies import Strategy
from trek.strategies.regrouping import Regrouping
from trek.strategies.strategy_registry import default_strategy, open_elastic_strategy, open_strategy
from trek.train.artifacts import store_artifact
from trek.train.checkpointing.archive import Archive
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, RunState
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.stores import Storage
from trek.train.elastic_run import ElasticRun
from trek.train.folders import check_places, job_key, leaders_places
from trek.train.jobs.hang_report import note_error
from trek.train.leased_loop import LeasedLoop
from trek.train.loggers.base import ArtifactRow, EndState, JobIdentity, Logger
from trek.train.loggers.choice import LoggerChoice, open_loggers, split_loggers
from trek.train.loop.agenda import Agenda
from trek.train.loop.data_wait import DataWait
from trek.train.loop.elastic_group import ElasticGroup
from trek.train.loop.feed import Feed
from trek.train.loop.instruments import Instruments
from trek.train.loop.logical_workers import LogicalWorkers
from trek.train.loop.optimization import Optimization
from trek.train.loop.portions import Portion
from trek.train.loop.position import Position
from trek.train.loop.precision import OwnScaler, open_precision
from trek.train.loop.stop_agreement import StopAgreement
from trek.train.loop.stopping import SIGNAL_REASONS, Reason, StopOnSignals, Stopped, StopRequest, stopped
from trek.train.loop.worker_group import WorkerGroup
from trek.train.metrics.goal import Goal
from trek.train.metrics.journal import Journal
from trek.train.settings import TrainSettings
from trek.train.trial_host import TrialHost, find_host
from trek.world import World
from trek.world.seeds import seed_everything

if TYPE_CHECKING:
    import torch

    from trek.strategies.elastic_ps import ElasticServers
    from trek.train.traveler import Traveler

_NO_CONTEXT = nullcontext()
LENGTHS = (
    "max_length",
    "validation_period",
    "checkpoint_period",
    "checkpoint_policy",
    "report_period",
    "records_per_epoch",
    "initial_validation",
)
"""Settings that may still change when the parts of a run are made."""


class RunParts:
    """The parts of one rank's run, and the state of its loop."""

    def __init__(
        self,
        settings: TrainSettings | None = None,
        *,
        world: World | None = None,
        host: TrialHost | None = None,
        checkpoint_dir: Path | str | Storage | None = None,
        resume: CheckpointFolder | Path | str | None = None,
        folder: Path | str | None = None,
        loggers: Sequence[Logger | LoggerChoice] = (),
        stop: StopRequest | None = None,
        trial: Mapping[str, Any] | None = None,
        owner: str | None = None,
        job: JobIdentity | None = None,
        wait: DataWait | None = None,
        **named: Any,
    ) -> None:
        if stop is not None and not isinstance(stop, StopRequest):
            raise InputError(f"stop must be a StopRequest, got {stop!r}. Leave it out to stop on signals.")
        self.stop = stop or StopRequest()
        self._on_signals: AbstractContextManager[Any] = _NO_CONTEXT
        """Around the loop, and around the block of a `with`; callers that pass a World handle signals themselves."""
        self._closing = ExitStack()
        if world is not None and not isinstance(world, World):
            raise InputError(f"world must be a trek.World, got {world!r}.")
        if world is None:
            world = World.from_env()
            host = find_host(world, stop=self.stop)
            self._on_signals = StopOnSignals(self.stop) if host is None else _NO_CONTEXT
        chosen = TrainSettings.of(settings, **named)
        names, objects = split_loggers(loggers)
        check_places(checkpoint_dir=checkpoint_dir, resume=resume)
        if host is not None:
            chosen, folder = host.apply_to(chosen), host.folder
            checkpoint_dir, resume, owner, job = host.checkpoint_dir, host.resume, host.owner, host.job
            objects += host.loggers
        self.group: WorkerGroup = WorkerGroup()
        self.leases: LeasedLoop | None = None
        """The loop of workers that lease what they train on."""
        self.num_segments = 0
        """How often workers that lease have met to do something together."""
        self.strategy = self._open_strategy(world, chosen)
        self.strategy.setup()
        self._job = job
        self._has_folder = folder is not None
        if host is None:
            folder, checkpoint_dir = leaders_places(self.strategy, folder or Path.cwd(), checkpoint_dir)
        self.folder = Path(folder or Path.cwd())
        chosen = chosen.with_default_paths(self.folder)
        self.settings = chosen
        self._host = host
        seed_everything(chosen.seed)
        self.precision = open_precision(chosen.precision, world.device)
        self.optimization = Optimization(
            self.strategy,
            self.precision,
            group=self.group if self.leases is None else None,  # a step there is nobody else's
            clip_norm=chosen.clip_norm,
            clip_value=chosen.clip_value,
            compiled=chosen.compile,
            ema_decay=chosen.ema_decay,
        )
        self.optimization.counts_own_steps = self.leases is None
        self.logical: LogicalWorkers | None = None
        """The shares of a batch that this process computes, in `exact` mode of an elastic run."""
        if isinstance(self.strategy, Regrouping) and self.strategy.exact is not None:
            self.logical = LogicalWorkers(self.strategy, models=self.optimization.models, seed=chosen.seed)
        self.agreement = StopAgreement(self.strategy, self.stop, group=self.group)
        self.feed = Feed(self.strategy, accumulate=chosen.accumulate, wait=wait)
        self.journal = Journal(
            self.strategy,
            loggers=objects,
            open_more=partial(open_loggers, [*chosen.loggers, *names], folder=self.folder),
            on_nan=chosen.on_nan,
            find_job=lambda: self._own_job,
        )
        if self.group.is_elastic:
            self.journal.hold_batches()
        keep = KeepPolicy(best=chosen.keep_best, last=chosen.keep_last, every=chosen.keep_every)
        self.archive = Archive(
            checkpoint_dir,
            strategy=self.strategy,
            journal=self.journal,
            policy=keep if owner is None else None,
            trial=trial,
            owner=owner,
            find_job=lambda: self._own_job.key,
        )
        self.goal = Goal(chosen.metric, chosen.smaller_is_better)
        self.agenda = Agenda.of(chosen)
        self.on_validation: Callable[[], None] | None = None
        """Called on every rank when a validation is due; if None, the loop itself decides when to validate."""
        self.saved_at = -1
        """Number of batches trained when the run was last saved."""
        self.saved_state: Sequence[int] | None = None
        """What distinguished the state that was saved last: see the Traveler."""
        self.resumed_gradients: tuple[list[Any], Mapping[str, Any]] | None = None
        """The gradients of an unfinished group in the checkpoint that the run resumed from: those of each rank, and
        those that all have."""
        self._sources: dict[int, tuple[int, Loader, Any]] = {}
        """Where workers come and go: for which generation each loader was made, and from what, to make it anew."""
        self._length = chosen.max_length
        self.has_captured_step = False
        """Whether the step runs as a CUDA graph, which only the Trainer can do."""
        self._resume = resume
        self._resumes_latest = resume == "latest"
        self._stateful: dict[str, Any] = {}
        self._num_samples = 1
        self.save_request: str | None = None
        """The id of the checkpoint to take at the next place where the run can continue; None if none was requested."""
        self._is_in_epochs = False
        self._is_in_train = False
        self._has_failed = False
        self._is_closed = False
        self._started_s = job_started_s()
        self._instruments = Instruments(chosen, world=world)
        if self.group.is_elastic:
            self.close_at_exit()

    @cached_property
    def _own_job(self) -> JobIdentity:
        """Which job the run belongs to, on the leader: that of the run which "latest" resumes."""
        if self._job is not None:
            return self._job
        found = self.archive.found_job if self._resumes_latest else ""
        return JobIdentity(key=found or job_key(self.folder if self._has_folder else None))

    def _open_strategy(self, world: World, settings: TrainSettings) -> Strategy:
        """How the processes of this run stay together; `group` is who they are."""
        if not is_elastic():
            return open_strategy(settings.strategy or default_strategy(world.size), world, **settings.strategy_options)
        world = elastic_world(world)
        strategy = open_elastic_strategy(
            settings.strategy, world, is_exact=settings.elastic == "exact", options=settings.strategy_options
        )
        self.group = group = ElasticGroup(open_member(world), strategy, run=ElasticRun(self), stop=self.stop)
        if strategy.leases_work:
            self.leases = LeasedLoop(cast("Traveler", self), strategy=cast("ElasticServers", strategy), group=group)
        return strategy

    def set_lengths(self, **named: Any) -> None:
        """Change how long to train, and how often to validate, save and report: fields of TrainSettings.

        Call it before training begins. What the trial of an experiment decides is not changed.
        """
        if unknown := sorted(set(named) - set(LENGTHS)):
            raise InputError(f"set_lengths changes {', '.join(LENGTHS)}, got {unknown[0]!r}. Pass it to the Traveler.")
        chosen = TrainSettings.of(self.settings, **named)
        self.settings = chosen if self._host is None else self._host.apply_to(chosen)
        self._length = self.settings.max_length
        self.agenda = Agenda.of(self.settings)

    def use_scaler(self, scaler: torch.amp.GradScaler) -> None:
        """Unscale gradients with a scaler that the loop itself scales its losses with."""
        self.precision = self.optimization.precision = OwnScaler(self.world.device, scaler, instead_of=self.precision)

    def close_at_exit(self) -> None:
        """Close this Traveler when the program ends without having closed it."""
        atexit.register(self._close_at_exit)
        self.on_close(lambda: atexit.unregister(self._close_at_exit))

    def _close_at_exit(self) -> None:
        """A program that failed has not finished its job."""
        if not self._is_closed:
            self._has_failed = self._has_failed or getattr(sys, "last_value", None) is not None
            self.close()

    @property
    def world(self) -> World:
        """This process among those that train now."""
        return self.strategy.world

    @property
    def position(self) -> Position:
        """The position of the run in its data."""
        return self.feed.position

    @property
    def is_counted(self) -> bool:
        """Whether the batch at hand counts: a rank without a row of a short last batch works on a stand-in."""
        return self._num_samples > 0

    def bound(self, data: Any) -> Loader:
        """The Loader of `data` for the present World; `data` may be one that was bound to an earlier World."""
        if not self.group.is_elastic:
            return as_loader(data, world=self.world, seed=self.settings.seed)
        source = self._source(data)
        for made_for, loader, of in self._sources.values():
            if of is source and made_for == self.world.generation:
                return loader
        loader = as_loader(source, world=self.world, seed=self.settings.seed)
        self._sources[id(loader)] = self.world.generation, loader, source
        return loader

    def _source(self, data: Any) -> Any:
        """Where workers come and go, what a loader was made from."""
        known = self._sources.get(id(data))
        return data if known is None else known[2]

    def _batch_context(self, portion: Portion) -> AbstractContextManager[Any]:
        """Around the caller's work on a batch: metrics count by its samples, and not at all for a stand-in."""
        self._num_samples = portion.num_samples
        if self.logical is not None and self.optimization.is_training:
            return self._share_context(portion)
        return _NO_CONTEXT if portion.num_samples else self.journal.discard_batch()

    @contextmanager
    def _share_context(self, portion: Portion) -> Iterator[None]:
        assert self.logical is not None
        with self.logical.acting(portion), _NO_CONTEXT if portion.num_samples else self.journal.discard_batch():
            yield

    def shared_state(self) -> dict[str, Any]:
        """What is the same on every rank, without the models."""
        return {
            "position": self.feed.position.state_dict(),
            "optimization": self.optimization.state_dict(),
            "journal": self.journal.state_dict(),
            "stateful": {name: holder.state_dict() for name, holder in self._stateful.items()},
        }

    def load_shared(self, models: list[dict[str, torch.Tensor]], shared: Mapping[str, Any]) -> None:
        """Restore the models and the `shared_state`, but for the position."""
        self.optimization.load(models, shared["optimization"])
        self.journal.load_state_dict(shared["journal"])
        for name, holder in self._stateful.items():
            if name in shared["stateful"]:
                holder.load_state_dict(shared["stateful"][name])

    def is_save_requested(self) -> bool:
        """Of workers that lease, each has trained other batches, so the request of one counts for all."""
        is_own = self.save_request is not None
        if self.leases is None:
            return is_own
        return self.group.together("save requested", partial(self.strategy.any, is_own))

    def save_now(self) -> str | None:
        """Take a checkpoint here; its id on the leader."""
        return self.group.together("save", self.save_together)

    def save_together(self) -> str | None:
        """`save_now`, inside of something that all workers do together."""
        self.optimization.sync_buffers()
        models, shared = self.optimization.model_states(), self.shared_state()
        own = {
            "feed": self.feed.rank_state(),
            "journal": self.journal.rank_state(),
            "gradients": self.optimization.gradients(),
        }
        state = RunState(models=models, shared=shared, ranks=self.strategy.gather(own))
        self.saved_at, self.saved_state = self.position.batches, self.state_to_save()
        metrics, batches = self.journal.metrics_at(self.position), self.position.batches
        score = self.goal.score(metrics)
        name = self.archive.save(state, batches=batches, metrics=metrics, score=score, name=self.save_request)
        self.save_request = None
        return name

    def state_to_save(self) -> list[int]:
        """Differs if more than training has happened since a save: the end of an epoch, or a validation."""
        return [self.position.batches, self.position.epoch, int(bool(self.journal.metrics_at(self.position)))]

    def restore_rank(self, state: RunState) -> None:
        """Restore the state of this rank; if the number of ranks changed, the leader takes over the metrics of all."""
        rank, size, saved = self.world.rank, self.world.size, len(state.ranks)
        known = state.ranks[rank] if rank < saved else None
        feeds = [one["feed"] for one in state.ranks]
        self.feed.load(state.shared["position"], known["feed"] if known else None, ranks=feeds)
        if size == saved:
            self.journal.load_rank_states([state.ranks[rank]["journal"]])
        elif self.world.is_leader:
            self.journal.load_rank_states([one["journal"] for one in state.ranks])
        self.resumed_gradients = [one["gradients"] for one in state.ranks], state.shared["optimization"]
        self.load_resumed_gradients()

    def load_resumed_gradients(self) -> None:
        """Restore the gradients of the group that the run was saved in."""
        if self.resumed_gradients is not None:
            self.optimization.load_gradients(*self.resumed_gradients)

    def leave_validation(self) -> None:
        """Leave a validation that was interrupted."""
        self.journal.leave_validation()
        self.optimization.swap_averages()
        self.optimization.set_mode(is_training=True)

    def show_workers(self) -> None:
        """The workers have changed: the leader shows the progress and writes checkpoints."""
        self._instruments.show_progress_of(self.world)
        self.archive.follow_leader()

    def log_artifact(self, value: Any, name: str | None = None) -> None:
        """Keep a file with the run: a path, bytes, a matplotlib figure, a pandas or Arrow table, or an image.

        The suffix of `name` says how it is written; the same name again replaces the file. Only the leader's is kept,
        so that all ranks may call it.
        """
        if not self.world.is_leader:
            return
        stored, path = store_artifact(value, name, folder=self.folder / "artifacts")
        self.journal.log_artifact(
            ArtifactRow(
                name=stored,
                path=str(path),
                num_bytes=path.stat().st_size,
                batches=self.feed.position.batches,
                time_s=time.time(),
            )
        )

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this Traveler is closed."""
        self._closing.callback(callback)

    def close(self) -> None:
        """Finish writing, flush the loggers, leave the process group."""
        self._is_closed = True
        with ExitStack() as stack:
            stack.callback(self._closing.close)
            stack.callback(self.group.close)
            stack.callback(self.strategy.teardown)
            if not self._has_failed:
                stack.callback(self.group.finish)
            stack.callback(self.journal.close)
            stack.callback(self._tell_end)
            stack.callback(self.archive.close)
            stack.callback(self._instruments.close)

    def _tell_end(self) -> None:
        """Of a worker that leaves an elastic job, the job goes on."""
        if self.stop.reason != "dismissed":
            self.journal.end(_end_state(self.stop.reason, has_failed=self._has_failed))

    def __enter__(self) -> Self:
        note_error(None)  # clears the error of an earlier Traveler
        self._closing.enter_context(self._on_signals)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            note_error(tb)
            self._has_failed = not isinstance(error, Stopped) or error.reason == "dismissed"
        self.close()
        if error is not None and (cause := self.strategy.cause_of(error)) is not None:
            raise cause from error
        is_alone = not self.group.is_elastic  # of an elastic job, all that was to be done is done
        if error is None and is_alone and self._on_signals is not _NO_CONTEXT and self.stop.reason in SIGNAL_REASONS:
            raise stopped(self.stop.reason)  # it came after the last batch


def _end_state(reason: Reason, *, has_failed: bool) -> EndState:
    if has_failed:
        return "failed"
    if reason == "preempted":
        return "paused"
    return "killed" if reason in (*SIGNAL_REASONS, "killed") else "completed"
