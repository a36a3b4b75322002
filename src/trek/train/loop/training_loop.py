"""TrainingLoop: one rank's loop. Reads batches, does what is due between them, and ends the run.

Its `state` is what the run is, its `plan` says what is due, and its `group` who takes part. The caller's code runs
between the batches that `train` and `validate` yield: the Traveler is the face it sees.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trek.data.loaders import Loader, as_loader
from trek.elastic.joining import job_started_s
from trek.errors import ConfigError, InputError
from trek.phases import reached
from trek.strategies import Strategy
from trek.strategies.base import GroupBroken
from trek.train.checkpointing.archive import Archive
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.checkpointing.checkpoint_writer import new_name
from trek.train.length import Length
from trek.train.loggers.base import EndState
from trek.train.loop.instruments import Instruments
from trek.train.loop.logical_workers import LogicalWorkers
from trek.train.loop.plan import Action, Plan
from trek.train.loop.portions import Portion
from trek.train.loop.position import Position
from trek.train.loop.progress import print_above_bars
from trek.train.loop.progress_lines import ProgressLines
from trek.train.loop.replicas import check_data
from trek.train.loop.run_state import RunState
from trek.train.loop.stopping import FINAL_REASONS, SIGNAL_REASONS, Reason, StopRequest, stopped
from trek.train.loop.worker_group import Rewound, WorkerGroup
from trek.train.metrics.goal import Goal
from trek.train.metrics.metric_sums import Reduction
from trek.train.settings import TrainSettings
from trek.train.trial_host import TrialHost
from trek.world import World

NO_CONTEXT: AbstractContextManager[Any] = nullcontext()


class TrainingLoop:
    """The loop of workers that step together. Workers that lease their batches have `LeasedLoop`."""

    def __init__(
        self,
        settings: TrainSettings,
        *,
        strategy: Strategy,
        group: WorkerGroup,
        state: RunState,
        archive: Archive,
        instruments: Instruments,
        stop: StopRequest,
        on_signals: AbstractContextManager[Any],
        host: TrialHost | None,
        folder: Path,
        resume: CheckpointFolder | Path | str | None,
    ) -> None:
        self.settings = settings
        self.strategy = strategy
        self.group = group
        self.state = state
        self.optimization = state.optimization
        self.feed = state.feed
        self.journal = state.journal
        self.agreement = state.agreement
        self.archive = archive
        self.instruments = instruments
        self.stop = stop
        self.on_signals = on_signals
        """Around the loop, and around the block of a `with`; callers that pass a World handle signals themselves."""
        self.folder = folder
        self.goal = Goal(settings.metric, settings.smaller_is_better)
        self.plan = Plan.of(settings)
        self.on_validation: Callable[[], None] | None = None
        """Called on every rank when a validation is due; if None, the caller's loop decides when to validate."""
        self.has_captured_step = False
        """Whether the step runs as a CUDA graph, which only the Trainer can do."""
        self.is_dry = False
        """Whether batches do not count now, so that nothing is recorded or saved."""
        self.has_failed = False
        self.resumes_latest = resume == "latest"
        self.num_samples = 1
        """Samples of the batch at hand; 0 if it is a stand-in, for a rank without a row of a short last batch."""
        self.closing = ExitStack()
        """Closed with the loop, after everything else."""
        self._host = host
        self._resume = resume
        self._length = settings.max_length
        self._sources: dict[int, tuple[int, Loader, Any]] = {}
        """In an elastic run: for which generation each loader was made, and from what, to make it anew."""
        self._is_in_epochs = False
        self._is_in_train = False
        self._is_closed = False
        self.journal.add_logger(ProgressLines(self._place, is_shown=lambda: instruments.shows_progress))

    @property
    def world(self) -> World:
        """This process among those that train now."""
        return self.strategy.world

    @property
    def position(self) -> Position:
        """The position of the run in its data."""
        return self.feed.position

    def set_lengths(self, named: Mapping[str, Any]) -> None:
        """Change settings of the plan before training begins; what the trial of an experiment decides stays."""
        chosen = TrainSettings.of(self.settings, **named)
        self.settings = chosen if self._host is None else self._host.apply_to(chosen)
        self._length = self.settings.max_length
        self.plan = Plan.of(self.settings)

    # -- data

    def bind(self, data: Any) -> Loader:
        """The Loader of `data` for this World; the run's lengths and periods are counted in its batches."""
        loader = self.bound(data)
        self.plan = Plan.of(self.settings, loader, length=self._length)
        return loader

    def bound(self, data: Any) -> Loader:
        """The Loader of `data` for the present World; `data` may be one that was bound to an earlier World."""
        if not self.group.is_elastic:
            return as_loader(data, world=self.world, seed=self.settings.seed)
        source = self.source(data)
        for made_for, loader, of in self._sources.values():
            if of is source and made_for == self.world.generation:
                return loader
        loader = as_loader(source, world=self.world, seed=self.settings.seed)
        self._sources[id(loader)] = self.world.generation, loader, source
        return loader

    def source(self, data: Any) -> Any:
        """In an elastic run, what a loader was made from."""
        known = self._sources.get(id(data))
        return data if known is None else known[2]

    # -- training

    def epochs(self, count: int | None) -> Iterator[int]:
        """See `Traveler.epochs`."""
        if count is None and self.settings.max_length is None:
            raise InputError("epochs() needs a number of epochs. Pass one, or set max_length.")
        self.restore()
        if count == 0 and self.settings.max_length is None:
            return
        self._length = self.settings.max_length or Length(count, "epochs")  # type: ignore[arg-type]  # checked above
        self.plan = Plan.of(self.settings, length=self._length)
        self._is_in_epochs = True
        try:
            with self.on_signals:
                while not self.plan.is_over(self.position):
                    batches, epoch = self.position.batches, self.position.epoch
                    self.feed.open_epoch()
                    yield epoch
                    if self.position.epoch == epoch and not self.plan.is_over(self.position):
                        self.group.together("end_epoch", partial(self._end_custom_epoch, batches))
                    self._validate_and_save(self.plan.due(self.position, at_end_of="epoch"))
        finally:  # also when the loop leaves early
            self._is_in_epochs = False
            self._length = self.settings.max_length
        if self._length is not None:
            self._finish()

    def train(self, data: Any) -> Iterator[Any]:
        """See `Traveler.train`."""
        self.restore()
        if self.settings.capture and not self.has_captured_step:
            raise ConfigError(
                "capture works for Trials only, and this is an explicit loop. Remove it, or use trek.fit."
            )
        loader = self.bind(data)
        self.group.together("data", partial(check_data, self.strategy, loader))
        if not self.plan.is_over(self.position) and (reason := self._ask()):  # requested between two epochs
            self._stop(reason)
        self.group.catch_up()
        is_ended, self._is_in_train = False, True
        try:
            while not is_ended:
                try:
                    is_ended = yield from self._train_epoch(self.bind(data), data)
                except Rewound:
                    self.state.save_request = None  # made again with the batch
                except GroupBroken:
                    self._train_again()
        finally:  # also when the loop leaves early
            self._is_in_train = False

    def _train_again(self) -> None:
        """The group broke in a batch, or after it. If it turns out to be complete, what is due after it follows."""
        batches = self.position.batches
        self.group.regroup(is_open=self.group.is_interrupted)
        if self.position.batches == batches:
            self.check()
        else:
            self.state.save_request = None  # made again with the batch

    def _train_epoch(self, loader: Loader, data: Any) -> Generator[Any, None, bool]:
        """Batches until the epoch or the run ends, and its end; False if the workers changed before."""
        if self.plan.is_over(self.position) and self.position.epoch_batch == 0:
            return True
        self.optimization.set_mode(is_training=True)
        self.instruments.advance(self.position.batches)
        self.journal.begin_training()
        return (yield from self.train_batches(loader, data))

    def train_batches(self, loader: Loader, data: Any) -> Generator[Any, None, bool]:
        """The batches of the epoch that are left; False if the workers changed before its end."""
        position, optimization, stop, group, state = self.position, self.optimization, self.stop, self.group, self.state
        beat, tell_written, next_check = self.instruments.beat, self.archive.tell, self._next_check()
        generation, until, agreement = self.world.generation, self.plan.length.batches, self.agreement
        with self.on_signals, self.instruments.bar(*self.bar_label(), start=position.epoch_batch) as bar:
            for portion in self._portions(loader, data) if position.batches != until else ():
                optimization.begin(portion)
                group.is_in_batch = True
                with self.batch_context(portion):
                    yield portion.data
                group.is_in_batch = False
                if group.is_interrupted:
                    raise GroupBroken
                if not portion.ends_batch:
                    continue
                bar.update()
                beat()
                tell_written()
                optimization.end_batch(position.batches)
                if not position.group_batches:
                    group.complete()
                if self.strategy.is_broken:
                    raise GroupBroken
                is_asked = stop.is_set or agreement.is_meeting_due or state.save_request is not None
                if is_asked or position.batches >= next_check:
                    self.check()
                    next_check = self._next_check()
                    if self.world.generation != generation:
                        return False
                if position.batches == until:
                    break
        if until is None or position.batches < until or position.epoch_batch == loader.num_batches:
            self.end_epoch()
        return True

    def _portions(self, loader: Loader, data: Any) -> Iterator[Portion]:
        logical = self.state.logical
        if logical is None:
            return self.feed.training(loader)
        if len(self.optimization.optimizers) > 1:
            raise ConfigError("elastic='exact' needs one optimizer, whose step ends a batch. Use elastic='fast'.")
        return self.feed.training_shares(logical.loaders(self.source(data)), logical)

    def batch_context(self, portion: Portion) -> AbstractContextManager[Any]:
        """Around the caller's work on a batch: metrics count by its samples, and not at all for a stand-in."""
        self.num_samples = portion.num_samples
        logical = self.state.logical
        if logical is not None and self.optimization.is_training:
            return self._share_context(logical, portion)
        return NO_CONTEXT if portion.num_samples else self.journal.discard_batch()

    @contextmanager
    def _share_context(self, logical: LogicalWorkers, portion: Portion) -> Iterator[None]:
        with logical.acting(portion), NO_CONTEXT if portion.num_samples else self.journal.discard_batch():
            yield

    def bar_label(self) -> tuple[str, int | None]:
        """What the progress bar of this epoch shows, and its number of batches."""
        label = self.plan.epoch_label(self.position)
        workers = f" · {self.world.size} worker{'s' * (self.world.size > 1)}" if self.group.is_elastic else ""
        return label + workers, self.plan.epoch_total(self.position)

    def _place(self) -> str:
        """Where the run is, in words."""
        position, progress = self.position, self.plan.progress(self.position)
        ended = position.epoch > 0 and position.epoch_batch == 0  # its end has been counted
        label = self.plan.epoch_label(replace(position, epoch=position.epoch - 1) if ended else position)
        done = f" ({progress:.0%})" if progress is not None else ""
        return f"{label.replace(':', '')}, batch {position.batches}{done}"

    # -- validation

    def validate(self, data: Any, *, how: Mapping[str, Reduction] | None = None) -> Iterator[Any]:
        """See `Traveler.validate`."""
        if self.group.is_elastic:
            self.restore()
        part = self.group.part("validate")
        while not (part.is_done or self.group.is_interrupted):
            try:
                yield from self.validation_batches(data)
                part.end(self.end_validation(how=how))
            except GroupBroken:
                self.group.regroup_between()
            except GeneratorExit:  # the caller's loop leaves early
                if self.journal.is_validating:
                    self.state.leave_validation()
                raise
        if self.state.save_request is not None and not self._is_in_loop:
            self.save_now()

    def validation_batches(self, data: Any) -> Iterator[Any]:
        """The batches of `validate`, without the reduction at its end."""
        loader = self.bound(data)
        self.begin_validation()
        with self.on_signals, self.instruments.bar("validation", loader.num_batches) as bar, torch.no_grad():
            for portion in self.feed.validation(loader):
                with self.batch_context(portion):
                    yield portion.data
                if self.strategy.is_broken:
                    raise GroupBroken
                bar.update()
                self.instruments.beat()
                self.archive.tell()

    def begin_validation(self) -> None:
        """Switch to evaluation mode; metrics logged from now on belong to a validation."""
        self.optimization.sync_buffers()
        self.optimization.swap_averages()
        self.journal.begin_validation()
        self.optimization.set_mode(is_training=False)

    def end_validation(
        self, *, how: Mapping[str, Reduction] | None = None, extra: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Reduce and report the validation metrics, and switch back to training mode."""
        reached("validation")
        metrics = self.journal.end_validation(self.position, how=how, extra=extra)
        self.goal.check(metrics)
        deciding = self.goal.choose(metrics)
        if deciding is not None and metrics:
            self.optimization.end_validation(metrics[deciding])
        self.optimization.swap_averages()
        self.optimization.set_mode(is_training=True)
        return metrics

    # -- what is due

    def check(self) -> None:
        """Between two batches: report, validate, save, and stop if any rank was asked to, in that order.

        Ranks agree on a stop every few seconds, and after every validation, since that may have decided that the run
        ends here.
        """
        position = self.position
        self.instruments.advance(position.batches)
        due = self.plan.due(position, at_end_of="batch")
        if "report" in due:
            self.report()
        agrees = not self.world.is_distributed or position.batches >= self.agreement.next_batch
        reason = self._ask() if agrees else ""
        if reason in FINAL_REASONS:
            self._stop(reason)
        if not self.plan.is_end(position) and self._validate_and_save(due):
            reason = self._ask()
        if reason:
            self._stop(reason)
        if self.agreement.is_meeting_due and not position.group_batches:
            self.agreement.is_meeting_due = False
            self.group.meet()

    def _validate_and_save(self, due: Sequence[Action]) -> bool:
        """Do these, and save if somebody asked for it; returns whether a validation was due."""
        has_validated = "validate" in due and self.on_validation is not None
        if has_validated:
            assert self.on_validation is not None
            self.report()
            self.group.together("validation", self.on_validation)
        if self.is_save_requested() or ("save" in due and self.state.saved_at != self.position.batches):
            self.save_now()
        return has_validated

    def _next_check(self) -> float:
        """The number of batches after which something other than training may be due next."""
        due = [self.plan.next_batch(self.position)]
        if self.world.is_distributed or self.group.is_elastic:
            due.append(self.agreement.next_batch)
        return min(*due, self.instruments.next_batch(self.position.batches))

    def _ask(self) -> Reason:
        """Why to stop, if any rank was asked to; `agreement` says whether workers are to join or leave."""

        def ask() -> tuple[Reason, dict[str, int]]:
            return self.agreement.ask(self.position.batches), self.agreement.state_dict()

        asked: tuple[Reason, dict[str, int]] | None = self.group.together("ask", ask)
        if asked is None:  # by a worker that joins: the others have
            return ""
        reason, agreed = asked
        self.agreement.load_state_dict(agreed)
        return reason

    def report(self) -> dict[str, float]:
        """Reduce and report the training metrics since the last report; called on all ranks together."""
        if self.is_dry:
            return {}
        return self.group.together("report", self._report)

    def _report(self) -> dict[str, float]:
        reached("report")
        rate = self.optimization.learning_rate()
        progress = self.plan.progress(self.position)
        if progress is not None:
            self.journal.log_progress(progress)
        return self.journal.report(self.position, wait_s=self.feed.take_wait_s(), learning_rate=rate)

    # -- the end of an epoch and of the run

    def end_epoch(self) -> None:
        """The data of the epoch is read: count it, and do what is due."""
        self.group.together("end_epoch", self._count_epoch)
        if not self._is_in_epochs:  # else after the whole body, so that a checkpoint includes the body's validation
            self._validate_and_save(self.plan.due(self.position, at_end_of="epoch"))

    def _count_epoch(self) -> None:
        self.report()
        self.position.end_epoch()
        self.optimization.end_epoch(self.position.epoch)
        self.journal.end_epoch(self.position.epoch - 1)

    def _end_custom_epoch(self, batches_before: int) -> None:
        """Count an epoch whose body left `train` early or did not call it."""
        if self.position.batches == batches_before and self.plan.length.epochs is None:
            raise InputError(
                f"this run would never end: its length is {self._length}, but the loop read no batch from "
                "traveler.train(…). Read the training data through traveler.train(…), or give the length in epochs."
            )
        self.position.end_epoch()

    def _stop(self, reason: Reason) -> None:
        """Save, wait until the checkpoint is stored, and leave the loop; a run that ended itself is validated first."""
        if reason in FINAL_REASONS:
            self._finish()
            raise stopped(self.stop.reason)
        if self.archive.is_open:
            if self.is_save_requested() or self.state.saved_at != self.position.batches:
                self.save_now()
            self._wait_until_written()
        if self.stop.reason in SIGNAL_REASONS and self.instruments.shows_progress:
            saved = 'saved; continue with resume="latest"' if self.archive.is_open else "not saved: no checkpoint_dir"
            print_above_bars(f"trek: stopped after batch {self.position.batches}, {saved}.")
        raise stopped(self.stop.reason)

    def _finish(self) -> None:
        """End a run: a last report, validation and checkpoint, unless just made."""
        self.report()
        if self.on_validation is not None:
            self.group.together("validation", self.on_validation)
        if self.archive.is_open and (self.is_save_requested() or not self.state.is_saved):
            self.save_now()
        self._wait_until_written()

    def _wait_until_written(self) -> None:
        """Where the leader may be lost while it writes, all workers wait, and another one saves again."""
        if self.group.is_elastic and self.archive.is_open:
            self.group.together("written", self._save_until_written)
        self.archive.wait()

    def _save_until_written(self) -> None:
        reached("finish")
        if self.strategy.any(self.world.is_leader and not self.archive.has_saved(self.position.batches)):
            self._save_together()
        self.archive.wait()
        self.strategy.barrier()

    # -- checkpoints

    def save(self) -> str | None:
        """See `Traveler.save`."""
        self.archive.check_open()
        if self.is_dry:
            return None
        if not (self._is_in_loop or self.journal.is_validating):
            return self.save_now()
        if not self.group.part("save request").is_done:
            self.state.save_request = self.state.save_request or new_name()
        return self.state.save_request if self.world.is_leader else None

    @property
    def _is_in_loop(self) -> bool:
        return self._is_in_epochs or self._is_in_train

    def is_save_requested(self) -> bool:
        """Whether to take a checkpoint that the caller's code asked for, on every rank alike."""
        return self.state.save_request is not None

    def save_now(self) -> str | None:
        """Take a checkpoint here; its id on the leader."""
        return self.group.together("save", self._save_together)

    def _save_together(self) -> str | None:
        reached("save")
        snapshot = self.state.snapshot()
        metrics, batches = self.journal.metrics_at(self.position), self.position.batches
        score, name = self.goal.score(metrics), self.state.save_request
        saved = self.archive.save(snapshot, batches=batches, metrics=metrics, score=score, name=name)
        self.state.save_request = None
        return saved

    def restore(self, resume: CheckpointFolder | Path | str | None = None) -> CheckpointFolder | None:
        """See `Traveler.restore`."""
        chosen, self._resume = resume or self._resume, None
        self.resumes_latest |= chosen == "latest"
        return self.group.join(
            partial(self._restore, chosen), state=self.state, begin_generation=self._begin_generation
        )

    def _restore(self, resume: CheckpointFolder | Path | str | None, is_again: bool) -> CheckpointFolder | None:
        """Where the whole job begins again, it goes on from what it has saved itself."""
        self.optimization.check_replicas()  # a rank may have added less than the others
        started_s = job_started_s()
        own = self.archive.find("latest", since_s=started_s) if is_again and self.archive.is_open else None
        checkpoint = own or self.archive.find(resume)
        if checkpoint is not None:
            self.state.load(checkpoint.read())
        else:
            self.check_savable()
        return checkpoint

    def check_savable(self) -> None:
        """Raise `InputError` if the run saves checkpoints, and its state is none that they can hold."""
        if self.archive.is_open:
            self.state.check_savable()

    def _begin_generation(self) -> None:
        """The group has other workers: go on with them; the leader shows the progress and writes checkpoints."""
        self.state.begin_generation()
        self.instruments.show_progress_of(self.world)
        self.archive.follow_leader()

    # -- closing

    def close_at_exit(self) -> None:
        """Close this loop when the program ends without having closed it."""
        atexit.register(self._close_at_exit)
        self.closing.callback(atexit.unregister, self._close_at_exit)

    def _close_at_exit(self) -> None:
        """A program that failed has not finished its job."""
        if not self._is_closed:
            self.has_failed = self.has_failed or getattr(sys, "last_value", None) is not None
            self.close()

    def close(self) -> None:
        """Take a checkpoint that was requested last, finish writing, flush the loggers, leave the group."""
        try:
            if self.state.save_request is not None and not self.has_failed:
                self.save_now()
        finally:
            self._is_closed = True
            with ExitStack() as stack:
                stack.callback(self.closing.close)
                stack.callback(self.group.close)
                stack.callback(self.strategy.teardown)
                if not self.has_failed:
                    stack.callback(self.group.finish)
                stack.callback(self.journal.close)
                stack.callback(self._log_end)
                stack.callback(self.archive.close)
                stack.callback(self.instruments.close)

    def _log_end(self) -> None:
        """A job goes on without a worker that leaves it."""
        if self.stop.reason != "dismissed":
            self.journal.end(_end_state(self.stop.reason, has_failed=self.has_failed))


def _end_state(reason: Reason, *, has_failed: bool) -> EndState:
    if has_failed:
        return "failed"
    if reason == "preempted":
        return "paused"
    return "killed" if reason in (*SIGNAL_REASONS, "killed") else "completed"
