"""Traveler: what an explicit training loop holds. It places, shards, weighs, steps, counts, reports and saves.

    def train(tr: trek.Traveler) -> None:
        model = tr.add_model(Net())
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        data = tr.add_loader(train_set, batch_size=64, shuffle=True)
        for epoch in tr.epochs(2):
            for x, y in tr.train(data):
                with tr.autocast():
                    loss = F.cross_entropy(model(x), y)
                tr.backward(loss)
                tr.step(optimizer)
                tr.log(loss=loss)

The Trainer drives Trials through this same object, so there is one loop in the code base. Starting processes is not its
business, nor is what a Trial looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from trek.data.loaders import DataLoader, Loader, as_loader
from trek.data.loaders.base import nothing
from trek.errors import InputError
from trek.strategies.strategy_registry import default_strategy, open_strategy
from trek.train.checkpointing.archive import Archive
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, RunState
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.jobs.hang_report import HangWatch, note_error
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loggers.choice import open_loggers
from trek.train.loop.agenda import Agenda
from trek.train.loop.determinism import Determinism
from trek.train.loop.feed import Feed
from trek.train.loop.optimization import Optimization, StepUnit
from trek.train.loop.portions import Portion
from trek.train.loop.position import Position
from trek.train.loop.precision import open_precision
from trek.train.loop.profiling import Profiler
from trek.train.loop.progress import open_bar, print_beside_bars
from trek.train.loop.schedule import Schedule
from trek.train.loop.stopping import Stopped, StopRequest
from trek.train.metrics.goal import Goal
from trek.train.metrics.journal import Journal
from trek.train.metrics.metric_sums import Reduction
from trek.train.settings import TrainSettings
from trek.train.trial_host import TrialHost, find_host
from trek.world import World
from trek.world.seeds import seed_everything

if TYPE_CHECKING:
    import pandas as pd

Model = TypeVar("Model", bound=nn.Module)

# Ranks agree on a stop together; each time costs one tiny message.
_BATCHES_BETWEEN_AGREEMENTS = 16
_AS_IT_IS = nullcontext()


class Traveler:
    """The handle of one rank's training loop.

    Settings are given as a `TrainSettings` or by name: `Traveler(precision="bf16", accumulate=4)`. Without `world`, the
    World and the trial that the program runs for are read from the environment. What the run writes besides
    checkpoints (files of loggers, traces) is in `folder`, by default the working directory.
    """

    def __init__(
        self,
        settings: TrainSettings | None = None,
        *,
        world: World | None = None,
        host: TrialHost | None = None,
        checkpoint_dir: Path | str | None = None,
        resume: CheckpointFolder | Path | str | None = None,
        folder: Path | None = None,
        loggers: Sequence[Logger] = (),
        stop: StopRequest | None = None,
        trial: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        self.stop = stop or StopRequest()
        if world is None:
            world = World.from_env()
            host = find_host(world, stop=self.stop)
        own = TrainSettings.of(settings, **named)
        if host is not None:
            own, folder, checkpoint_dir, resume = host.over(own), host.folder, host.checkpoint_dir, host.resume
            loggers = [*loggers, *host.loggers]
        own = own.within(folder or Path.cwd())
        if world.is_leader:
            loggers = [*open_loggers(own.loggers, folder=folder or Path.cwd()), *loggers]
        self.world = world
        self.settings = own
        self.strategy = open_strategy(own.strategy or default_strategy(world.size), world, **own.strategy_options)
        self.strategy.setup()
        seed_everything(own.seed)
        self.precision = open_precision(own.precision, world.device)
        self.optimization = Optimization(
            self.strategy,
            self.precision,
            clip_norm=own.clip_norm,
            clip_value=own.clip_value,
            compiled=own.compile,
            ema_decay=own.ema_decay,
        )
        self.feed = Feed(self.strategy, accumulate=own.accumulate)
        self.journal = Journal(self.strategy, loggers=loggers)
        keep = KeepPolicy(best=own.keep_best, last=own.keep_last, every=own.keep_every)
        self.archive = Archive(checkpoint_dir, strategy=self.strategy, journal=self.journal, policy=keep, trial=trial)
        self.goal = Goal(own.metric, own.smaller_is_better)
        self.agenda = Agenda.of(own)
        self.on_validation: Callable[[], None] | None = None
        """Called on every rank when a validation is due; without it, validating is up to the loop."""
        self.saved_at = -1
        """Batches trained when the run was last saved."""
        self._resume = resume
        self._stateful: dict[str, Any] = {}
        self._num_samples = 1
        self._is_in_epochs = False
        self._owes_save = False
        self._show_progress = own.show_progress and world.is_leader
        self._determinism = Determinism() if own.deterministic else None
        self._profiler = Profiler(own.profile) if own.profile is not None and world.is_leader else None
        is_watched = own.hang_s is not None and world.is_distributed
        self._hang_watch = HangWatch(rank=world.rank, hang_s=own.hang_s) if is_watched else None
        self._beat: Callable[[], None] = self._hang_watch.beat if self._hang_watch else nothing

    # -- what the loop is made of

    def add_model(self, model: Model) -> Model:
        """Place and wrap a model; train what comes back."""
        wrapped = self.optimization.add_model(model)
        if not self.world.is_leader:
            # Replicas start equal because they are built from the same seed; from here on each rank draws its own.
            seed_everything(self.seed, rank=self.world.rank)
        return wrapped  # type: ignore[return-value]  # it stands in for the model: callers use it as one

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Let `step` move this optimizer."""
        return self.optimization.add_optimizer(optimizer)

    def add_scheduler(self, scheduler: Any, *, per: StepUnit = "step", every: int = 1) -> Any:
        """Step a learning-rate scheduler after every optimizer step, batch or epoch."""
        return self.optimization.add_scheduler(scheduler, per=per, every=every)

    def add_loader(self, data: Any, batch_size: int | None = None, shuffle: bool = False, **loading: Any) -> Loader:
        """Shard data for this world: a dataset in batches, as `trek.DataLoader` takes it, or a loader as it is.

        `batch_size` counts samples per process; with `global_batch_size` the model learns from the same batches on any
        number of processes.
        """
        is_dataset = batch_size is not None or "global_batch_size" in loading
        source = DataLoader(data, batch_size or 1, shuffle, **loading) if is_dataset else data
        return as_loader(source, world=self.world, seed=self.seed)

    def add_state(self, name: str, holder: Any) -> None:
        """Save and restore `holder` (with `state_dict` and `load_state_dict`) with every checkpoint."""
        self._stateful[name] = holder

    # -- the loop

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """Epoch numbers from where the run stands to its end: the `max_length` of its settings, else `count` epochs.

        A run with a `max_length` ends with a report, a validation where `on_validation` is set, and a checkpoint.
        """
        owns_end = self.settings.max_length is not None
        if not owns_end:
            if count is None:
                raise InputError("epochs() needs a number of epochs, or a Traveler with a max_length.")
            self.settings = TrainSettings.of(self.settings, max_length=Length(count, "epochs"))
            self.agenda = Agenda.of(self.settings)
        self._is_in_epochs = True
        self.restore()
        while not self.agenda.is_over(self.position):
            batches, epoch = self.position.batches, self.position.epoch
            yield epoch
            if self.position.epoch == epoch and not self.agenda.is_over(self.position):
                self._end_own_epoch(batches)
            self._do_what_an_epoch_owes()
        if owns_end:
            self._finish()

    def train(self, data: Any) -> Iterator[Any]:
        """The batches of the current epoch, from where the run stands, no further than the run goes.

        A batch counts as trained when it is handed out, so save after the step that used it.
        """
        self.restore()
        loader = self.bind(data)
        if self.agenda.is_over(self.position):
            return
        self._train_mode()
        if self._profiler:
            self._profiler.advance(self.position.batches)
        self.journal.begin_training()
        if self._is_savable and self.strategy.any(self.stop.is_set):  # asked to between two epochs
            self._stop()
        position, optimization, stop, until = self.position, self.optimization, self.stop, self.agenda.length.batches
        next_check = self._next_check()
        with self._bar(self._epoch_label(), loader.num_batches, start=position.epoch_batch) as bar:
            for portion in self.feed.training(loader):
                optimization.begin(portion)
                with self._counting(portion):
                    yield portion.data
                bar.update()
                self._beat()
                optimization.end_batch(position.batches)
                if position.batches >= next_check or stop.is_set or self._owes_save:
                    self._check()
                    next_check = self._next_check()
                if position.batches == until:
                    break
        if until is None or position.batches < until or position.epoch_batch == loader.num_batches:
            self._end_epoch()

    def bind(self, data: Any) -> Loader:
        """The Loader of `data` for this world, with the run's lengths and periods counted in its batches."""
        loader = as_loader(data, world=self.world, seed=self.seed)
        self.agenda = Agenda.of(self.settings, loader)
        return loader

    def validate(self, data: Any, *, how: Mapping[str, Reduction] | None = None) -> Iterator[Any]:
        """One pass over validation data, with models in evaluation mode and without gradients."""
        yield from self.validation_batches(data)
        self.end_validation(how=how)

    def autocast(self) -> AbstractContextManager[Any]:
        """Around the forward pass and the loss."""
        return self.precision.autocast()

    def backward(self, loss: torch.Tensor) -> None:
        """Backward through the mean loss of this rank's samples."""
        self.optimization.backward(loss)

    def step(
        self,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ) -> bool:
        """Sync, clip, step, clear gradients, move schedulers; nothing while gradients are still accumulating."""
        return self.optimization.step(optimizer, clip_norm=clip_norm, clip_value=clip_value)

    def log(self, metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Metrics of this batch, averaged by sample over batches and ranks until they are reported."""
        self.journal.log({**metrics, **named} if metrics and named else metrics or named, num_samples=self._num_samples)

    # -- state

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.settings.seed

    @property
    def position(self) -> Position:
        """How far the run has come."""
        return self.feed.position

    @property
    def results(self) -> pd.DataFrame:
        """The table of epochs."""
        return self.journal.table.to_pandas()

    def save(self) -> str | None:
        """Save everything, every rank together; returns once the state is copied, and writes in the background.

        Where gradients half way through a group cannot be saved, it happens when the group ends.
        """
        self._owes_save = not self._is_savable
        if self._owes_save:
            return None
        self.optimization.sync_buffers()
        models = self.optimization.model_states()
        shared = {
            "position": self.position.state_dict(),
            "optimization": self.optimization.state_dict(),
            "journal": self.journal.state_dict(),
            "stateful": {name: holder.state_dict() for name, holder in self._stateful.items()},
        }
        own = {
            "feed": self.feed.rank_state(),
            "journal": self.journal.rank_state(),
            "gradients": self.optimization.gradients(),
        }
        self.saved_at = self.position.batches
        state = RunState(models=models, shared=shared, ranks=self.strategy.gather(own))
        metrics = self.journal.metrics_at(self.position)
        return self.archive.save(state, batches=self.position.batches, metrics=metrics, score=self.goal.score(metrics))

    def restore(self, resume: CheckpointFolder | Path | str | None = None) -> CheckpointFolder | None:
        """Go on from a checkpoint (by default the one given at the start); call it when everything is added."""
        checkpoint = self.archive.find(resume or self._resume)
        self._resume = None
        if checkpoint is None:
            return None
        state = checkpoint.read()
        self.optimization.load(state.models, state.shared["optimization"])
        self.journal.load_state_dict(state.shared["journal"])
        for name, holder in self._stateful.items():
            if name in state.shared["stateful"]:
                holder.load_state_dict(state.shared["stateful"][name])
        self._restore_rank(state)
        return checkpoint

    def barrier(self) -> None:
        """Wait for every rank."""
        self.strategy.barrier()

    def close(self) -> None:
        """Finish writing, close the loggers, and leave the process group."""
        with ExitStack() as stack:
            stack.callback(self.strategy.teardown)
            stack.callback(self.journal.close)
            stack.callback(self.archive.close)
            for part in (self._profiler, self._hang_watch, self._determinism):
                if part is not None:
                    stack.callback(part.close)

    def __enter__(self) -> Traveler:
        note_error(None)  # of a Traveler before this one
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            note_error(tb)
        self.close()

    # -- for the Trainer, and for loops with needs of their own

    def report(self) -> dict[str, float]:
        """Reduce and log the training metrics since the last report; all ranks must call it."""
        wait_s, self.feed.wait_s = self.feed.wait_s, 0.0
        rate = self.optimization.learning_rate()
        progress = self.agenda.progress(self.position)
        if progress is not None:
            self.journal.tell_progress(progress)
        return self.journal.report(self.position, wait_s=wait_s, learning_rate=rate)

    def validation_batches(self, data: Any) -> Iterator[Any]:
        """The batches of `validate`, without its end."""
        loader = as_loader(data, world=self.world, seed=self.seed)
        self.begin_validation()
        with self._bar("validation", loader.num_batches) as bar, torch.no_grad():
            for portion in self.feed.validation(loader):
                with self._counting(portion):
                    yield portion.data
                bar.update()
                self._beat()

    def begin_validation(self) -> None:
        """Evaluation mode, and what is logged belongs to a validation."""
        self.optimization.sync_buffers()
        self.optimization.swap_averages()
        self.journal.begin_validation()
        for model in self.optimization.models:
            model.eval()

    def end_validation(
        self, *, how: Mapping[str, Reduction] | None = None, extra: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Reduce and report what was logged; back to training mode."""
        metrics = self.journal.end_validation(self.position, how=how, extra=extra)
        self.optimization.swap_averages()
        self._train_mode()
        return metrics

    # -- inside

    def _check(self) -> None:
        """Between two batches: report, validate, save, and stop if any rank was asked to, in that order.

        What is due at the end of an epoch waits until the epoch is counted, and at the end of the run until the run
        ends.
        """
        position, agenda = self.position, self.agenda
        if self._profiler:
            self._profiler.advance(position.batches)
        if agenda.reports.is_due(position):
            self.report()
        if position.epoch_batch != agenda.epoch_batches and not agenda.is_over(position):
            self._do_what_is_due()
        if not self._is_savable or (self.world.is_distributed and position.batches % _BATCHES_BETWEEN_AGREEMENTS):
            return
        if self.strategy.any(self.stop.is_set):
            self._stop()

    def _do_what_is_due(self) -> None:
        if self.on_validation is not None and self.agenda.validations.is_due(self.position):
            self.report()
            self.on_validation()
        is_due = self.agenda.checkpoints.is_due(self.position) or self._owes_save
        if is_due and self.saved_at != self.position.batches:
            self.save()

    @property
    def _is_savable(self) -> bool:
        return self.position.group_batches == 0 or self.strategy.saves_held_gradients

    def _stop(self) -> None:
        """Save, wait until it is on storage, and leave the loop with the reason of whoever asked."""
        self.stop.request(next(reason for reason in self.strategy.gather(self.stop.reason) if reason))
        if self.archive.is_open:
            if self.saved_at != self.position.batches:
                self.save()
            self.archive.wait()
        if self.stop.reason == "signal" and self._show_progress:
            saved = (
                'saved; go on with resume="latest"' if self.archive.is_open else "not saved: it has no checkpoint_dir"
            )
            print_beside_bars(f"trek: stopped after batch {self.position.batches}, {saved}.")
        raise Stopped(self.stop.reason)

    def _next_check(self) -> float:
        """The next batch after which there may be something to do besides training."""
        due = [self.agenda.next_batch(self.position)]
        if self.world.is_distributed:
            due.append(Schedule(batches=_BATCHES_BETWEEN_AGREEMENTS).next_batch(self.position))
        traced = self._profiler.boundaries() if self._profiler else ()
        return min(*due, math.inf, *(batch for batch in traced if batch > self.position.batches))

    def _end_epoch(self) -> None:
        self.report()
        self.position.end_epoch()
        self.optimization.end_epoch(self.position.epoch)
        self.journal.end_epoch(self.position.epoch - 1)
        if not self._is_in_epochs:
            self._do_what_an_epoch_owes()

    def _end_own_epoch(self, batches_before: int) -> None:
        """The body of an epoch left it early, or trained on data of its own: count the epoch."""
        if self.position.batches == batches_before and self.agenda.length.epochs is None:
            raise InputError(
                f"the length of this run is {self.settings.max_length}, but the loop took no batch from "
                "traveler.train(…), so it would never end. Read the training data through traveler.train(…), or give "
                "the length in epochs."
            )
        self.position.end_epoch()

    def _do_what_an_epoch_owes(self) -> None:
        """Validate and save, if the run stands at the end of an epoch that is one to do so at.

        Within `epochs` this comes after the whole body, so that a checkpoint holds the body's own validation.
        """
        if self.position.epoch_batch == 0:
            self._do_what_is_due()

    def _finish(self) -> None:
        """The end of a run whose length is known: a last report, validation and checkpoint, unless just made."""
        self.report()
        if self.on_validation is not None:
            self.on_validation()
        if self.archive.is_open and self.saved_at != self.position.batches:
            self.save()
        self.archive.wait()

    def _epoch_label(self) -> str:
        last = self.agenda.length.epochs
        return f"epoch: {self.position.epoch + 1}" + (f"/{last}" if last else "")

    def _counting(self, portion: Portion) -> AbstractContextManager[Any]:
        """Around a batch in the caller's hands: what is logged there counts by its samples, of a stand-in nothing."""
        self._num_samples = portion.num_samples
        return _AS_IT_IS if portion.num_samples else self.journal.standing_in()

    def _train_mode(self) -> None:
        for model in self.optimization.models:
            model.train()

    def _bar(self, label: str, total: int | None, *, start: int = 0) -> AbstractContextManager[Any]:
        return open_bar(label, total=total, start=start, is_shown=self._show_progress)

    def _restore_rank(self, state: RunState) -> None:
        """Take back what was this rank's own; on another number of ranks the leader takes over what others held."""
        rank, size, saved = self.world.rank, self.world.size, len(state.ranks)
        known = state.ranks[rank] if rank < saved else None
        self.feed.load(state.shared["position"], known["feed"] if known else None)
        if size == saved:
            self.journal.load_rank_states([state.ranks[rank]["journal"]])
            self.optimization.load_gradients(state.ranks[rank]["gradients"])
        elif self.world.is_leader:
            self.journal.load_rank_states([one["journal"] for one in state.ranks])
            self.optimization.load_gradients(_summed([one["gradients"] for one in state.ranks], scale=size / saved))


def _summed(gradients: Sequence[Mapping[int, torch.Tensor]], *, scale: float) -> dict[int, torch.Tensor]:
    """One rank's gradients that average to the same over another number of ranks."""
    places = {place for one in gradients for place in one}
    return {p: torch.stack([one[p] for one in gradients if p in one]).sum(0) * scale for p in places}
