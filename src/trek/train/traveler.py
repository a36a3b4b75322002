"""Traveler: the handle of an explicit training loop. Models, data, steps, metrics and checkpoints go through it.

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

The Trainer drives Trials through this same object, so there is one loop in the code base. Starting processes is handled
by `trek.train.jobs`, and the interface of a Trial by `trek.train.trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from trek.data.loaders import DataLoader, Loader
from trek.errors import ConfigError, InputError
from trek.strategies.base import GroupBroken
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, check_savable
from trek.train.checkpointing.checkpoint_writer import new_name
from trek.train.length import Length
from trek.train.loop.agenda import Agenda
from trek.train.loop.optimization import StepUnit
from trek.train.loop.portions import Portion
from trek.train.loop.progress import print_above_bars
from trek.train.loop.replicas import check_data
from trek.train.loop.stopping import FINAL_REASONS, SIGNAL_REASONS, Reason, stopped
from trek.train.loop.worker_group import Rewound
from trek.train.metrics.metric_sums import Reduction
from trek.train.run_parts import RunParts
from trek.world.seeds import seed_everything

if TYPE_CHECKING:
    import pandas as pd

Model = TypeVar("Model", bound=nn.Module)

_NO_CONTEXT = nullcontext()


class Traveler(RunParts):
    """The handle of one rank's training loop.

    Pass settings as one object or by name: `Traveler(precision="bf16", accumulate=4)`; see `TrainSettings`. Without a
    World, the Traveler is the entry point of its program, and reads the World and the trial from the environment. Files
    other than checkpoints (of loggers, traces) are written to `folder`, by default the current directory.
    """

    # -- the parts of the loop

    def add_model(self, model: Model) -> Model:
        """Place and wrap a model; use the returned model for training."""
        if self.archive.is_open:
            check_savable(model)
        wrapped = self.optimization.add_model(model)
        if not self.world.is_leader:
            # Replicas are built from the same seed and so start equal; from here on, ranks draw different numbers.
            seed_everything(self.seed, rank=self.world.rank)
        return wrapped  # type: ignore[return-value]  # callers use the wrapper as the model

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Register an optimizer for `step`."""
        return self.optimization.add_optimizer(optimizer)

    def add_scheduler(self, scheduler: Any, *, per: StepUnit = "step", every: int = 1) -> Any:
        """Step a learning-rate scheduler after every optimizer step, batch or epoch."""
        return self.optimization.add_scheduler(scheduler, per=per, every=every)

    def add_loader(self, data: Any, batch_size: int | None = None, shuffle: bool = False, **loading: Any) -> Loader:
        """Shard data for this World: a dataset with the arguments of `trek.DataLoader`, or a loader without arguments.

        `batch_size` is the number of samples per process. With `global_batch_size`, the model is trained on the same
        batches on any number of processes.
        """
        is_dataset = batch_size is not None or "global_batch_size" in loading
        source = DataLoader(data, batch_size or 1, shuffle, **loading) if is_dataset else data
        return self.bound(source)

    def prefetch(self, row_ids: Callable[[Any], Mapping[str, torch.Tensor]]) -> None:
        """Pull rows of the next batch from servers while this one trains; `row_ids(batch)` gives its ids by table."""
        self.feed.on_next = lambda batch: self.strategy.prefetch(row_ids(batch))

    def add_state(self, name: str, holder: Any) -> None:
        """Save and restore `holder` (with `state_dict` and `load_state_dict`) with every checkpoint."""
        self._stateful[name] = holder

    # -- the loop

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """Epoch numbers from the current position to the end: the `max_length` of the settings, else `count` epochs.

        A run with a `max_length` ends with a report, a validation if `on_validation` is set, and a checkpoint.
        """
        if count is None and self.settings.max_length is None:
            raise InputError("epochs() needs a number of epochs. Pass one, or set max_length.")
        self.restore()
        if count == 0 and self.settings.max_length is None:
            return
        self._length = self.settings.max_length or Length(count, "epochs")  # type: ignore[arg-type]  # checked above
        self.agenda = Agenda.of(self.settings, length=self._length)
        self._is_in_epochs = True
        try:
            with self._on_signals:
                while not self.agenda.is_over(self.position):
                    batches, epoch = self.position.batches, self.position.epoch
                    self.feed.open_epoch()
                    yield epoch
                    if self.position.epoch == epoch and not self.agenda.is_over(self.position):
                        self.group.together("end_epoch", partial(self._end_custom_epoch, batches))
                    self._run_due_actions_at_epoch_end()
        finally:  # also when the loop leaves early
            self._is_in_epochs = False
            self._length = self.settings.max_length
        if self._length is not None:
            self._finish()

    def train(self, data: Any) -> Iterator[Any]:
        """The remaining batches of the current epoch, up to the end of the run.

        A batch counts as trained once it is yielded.
        """
        self.restore()
        if self.settings.capture and not self.has_captured_step:
            raise ConfigError(
                "capture works for Trials only, and this is an explicit loop. Remove it, or use trek.fit."
            )
        loader = self.bind(data)
        self.group.together("data", partial(check_data, self.strategy, loader))
        if not self.agenda.is_over(self.position) and (reason := self._ask()):  # requested between two epochs
            self._stop(reason)
        self.group.catch_up()
        is_ended, self._is_in_train = False, True
        try:
            while not is_ended:
                try:
                    is_ended = yield from self._train_batches(self.bind(data), data)
                except Rewound:
                    self.save_request = None  # made again with the batch
                except GroupBroken:
                    self._train_again()
        finally:  # also when the loop leaves early
            self._is_in_train = False

    def _train_again(self) -> None:
        """The group broke in a batch, or after it. If it turns out to be complete, what is due after it follows."""
        batches = self.position.batches
        self.group.regroup(is_open=self.group.is_interrupted)
        if self.position.batches == batches:
            self._check()
        else:
            self.save_request = None  # made again with the batch

    def _train_batches(self, loader: Loader, data: Any) -> Generator[Any, None, bool]:
        """Batches until the epoch or the run ends, and its end; False if the workers changed before."""
        if self.agenda.is_over(self.position) and self.position.epoch_batch == 0:
            return True
        self.optimization.set_mode(is_training=True)
        self._instruments.advance(self.position.batches)
        self.journal.begin_training()
        if self.leases is not None:
            return (yield from self.leases.train(data))
        position, optimization, stop, group = self.position, self.optimization, self.stop, self.group
        beat, tell_written, next_check = self._instruments.beat, self.archive.tell, self._next_check()
        generation, until, agreement = self.world.generation, self.agenda.length.batches, self.agreement
        with self._on_signals, self._instruments.bar(*self._bar_label(), start=position.epoch_batch) as bar:
            for portion in self._portions(loader, data) if position.batches != until else ():
                optimization.begin(portion)
                group.is_in_batch = True
                with self._batch_context(portion):
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
                is_asked = stop.is_set or agreement.is_meeting_due or self.save_request is not None
                if is_asked or position.batches >= next_check:
                    self._check()
                    next_check = self._next_check()
                    if self.world.generation != generation:
                        return False
                if position.batches == until:
                    break
        if until is None or position.batches < until or position.epoch_batch == loader.num_batches:
            self._end_epoch()
        return True

    def _portions(self, loader: Loader, data: Any) -> Iterator[Portion]:
        if self.logical is None:
            return self.feed.training(loader)
        if len(self.optimization.optimizers) > 1:
            raise ConfigError("elastic='exact' needs one optimizer, whose step ends a batch. Use elastic='fast'.")
        return self.feed.training_shares(self.logical.loaders(self._source(data)), self.logical)

    def bind(self, data: Any) -> Loader:
        """The Loader of `data` for this World; the run's lengths and periods are counted in its batches."""
        loader = self.bound(data)
        self.agenda = Agenda.of(self.settings, loader, length=self._length)
        return loader

    def validate(self, data: Any, *, how: Mapping[str, Reduction] | None = None) -> Iterator[Any]:
        """One pass over validation data, with the models in evaluation mode and without gradients.

        Where workers come and go, a pass that is interrupted begins again: count by `log`, which knows.
        """
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
                    self.leave_validation()
                raise
        if self.save_request is not None and not self._is_in_loop:
            self.save_now()

    def autocast(self) -> AbstractContextManager[Any]:
        """A context for the forward pass and the loss."""
        return self.precision.autocast()

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        """Backward pass from the mean loss over this rank's samples."""
        self.optimization.backward(loss, retain_graph=retain_graph)

    def step(
        self,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ) -> bool:
        """Sync and clip gradients, step, clear gradients, step schedulers; does nothing while gradients accumulate."""
        return self.optimization.step(optimizer, clip_norm=clip_norm, clip_value=clip_value)

    def log(self, metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Log metrics of this batch; they are averaged by sample over batches and ranks until the next report."""
        self.journal.log({**metrics, **named} if metrics and named else metrics or named, num_samples=self._num_samples)

    # -- state

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.settings.seed

    @property
    def results(self) -> pd.DataFrame:
        """The table of epochs."""
        return self.journal.table.to_pandas()

    def save(self) -> str | None:
        """Save everything, on all ranks together, and return the checkpoint's id on the leader.

        The checkpoint is taken where the run can continue to the bit: inside of a batch at the end of the batch, in the
        rest of an epoch's body at the end of the body, and elsewhere at once. It is written in the background.
        """
        self.archive.check_open()
        if not (self._is_in_loop or self.journal.is_validating):
            return self.save_now()
        if not self.group.part("save request").is_done:
            self.save_request = self.save_request or new_name()
        return self.save_request if self.world.is_leader else None

    @property
    def _is_in_loop(self) -> bool:
        return self._is_in_epochs or self._is_in_train

    def restore(self, resume: CheckpointFolder | Path | str | None = None) -> CheckpointFolder | None:
        """Resume from a checkpoint, by default the constructor's `resume`; call it after everything is added.

        This is where a process of a job whose workers come and go becomes one of them.
        """
        chosen, self._resume = resume or self._resume, None
        self._resumes_latest |= chosen == "latest"
        return self.group.join(partial(self._restore, chosen))

    def _restore(self, resume: CheckpointFolder | Path | str | None, is_again: bool) -> CheckpointFolder | None:
        """Where the whole job begins again, it goes on from what it has saved itself."""
        self.optimization.check_replicas()  # a rank may have added less than the others
        own = self.archive.find("latest", since_s=self._started_s) if is_again and self.archive.is_open else None
        checkpoint = own or self.archive.find(resume)
        if checkpoint is None:
            return None
        state = checkpoint.read()
        self.load_shared(state.models, state.shared)
        self.restore_rank(state)
        return checkpoint

    def barrier(self) -> None:
        """Wait for every rank."""
        self.group.together("barrier", self.strategy.barrier)

    def close(self) -> None:
        """Take a checkpoint that was requested before the loop was left, and close everything."""
        try:
            if self.save_request is not None and not self._has_failed:
                self.save_now()
        finally:
            super().close()

    # -- for the Trainer, and for loops with special needs

    def report(self) -> dict[str, float]:
        """Reduce and report the training metrics since the last report; called on all ranks together."""
        return self.group.together("report", self._report)

    def _report(self) -> dict[str, float]:
        rate = self.optimization.learning_rate()
        progress = self.agenda.progress(self.position)
        if progress is not None:
            self.journal.log_progress(progress)
        return self.journal.report(self.position, wait_s=self.feed.take_wait_s(), learning_rate=rate)

    def validation_batches(self, data: Any) -> Iterator[Any]:
        """The batches of `validate`, without the reduction at its end."""
        loader = self.bound(data)
        self.begin_validation()
        with self._on_signals, self._instruments.bar("validation", loader.num_batches) as bar, torch.no_grad():
            for portion in self.feed.validation(loader):
                with self._batch_context(portion):
                    yield portion.data
                if self.strategy.is_broken:
                    raise GroupBroken
                bar.update()
                self._instruments.beat()
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
        metrics = self.journal.end_validation(self.position, how=how, extra=extra)
        self.goal.check(metrics)
        deciding = self.goal.choose(metrics)
        if deciding is not None and metrics:
            self.optimization.end_validation(metrics[deciding])
        self.optimization.swap_averages()
        self.optimization.set_mode(is_training=True)
        return metrics

    # -- internals

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

    def _bar_label(self) -> tuple[str, int | None]:
        """What the progress bar of this epoch shows, and its number of batches."""
        label = self.agenda.epoch_label(self.position)
        workers = f" · {self.world.size} worker{'s' * (self.world.size > 1)}" if self.group.is_elastic else ""
        return label + workers, self.agenda.epoch_total(self.position)

    def _check(self) -> None:
        """Between two batches: report, validate, save, and stop if any rank was asked to, in that order.

        Actions due at the end of an epoch or of the run are left to the code that ends it. Ranks agree on a stop
        every few seconds, and after every validation, since that may have decided that the run ends here.
        """
        position, agenda = self.position, self.agenda
        self._instruments.advance(position.batches)
        if agenda.reports.is_due(position):
            self.report()
        agrees = not self.world.is_distributed or position.batches >= self.agreement.next_batch
        reason = self._ask() if agrees else ""
        if reason in FINAL_REASONS:
            self._stop(reason)
        if position.epoch_batch != agenda.epoch_batches and not agenda.is_over(position):
            has_validated = self._run_due_actions()
            if has_validated:
                reason = self._ask()
        if reason:
            self._stop(reason)
        if self.agreement.is_meeting_due and not position.group_batches:
            self.agreement.is_meeting_due = False
            self.group.meet()

    def _run_due_actions(self) -> bool:
        """Validate and save, if due; returns whether a validation was due."""
        has_validated = self.on_validation is not None and self.agenda.validations.is_due(self.position)
        if has_validated:
            assert self.on_validation is not None
            self.report()
            self.group.together("validation", self.on_validation)
        is_due = self.agenda.checkpoints.is_due(self.position) and self.saved_at != self.position.batches
        if self.is_save_requested() or is_due:
            self.save_now()
        return has_validated

    def _stop(self, reason: Reason) -> None:
        """Save, wait until the checkpoint is stored, and leave the loop; a run that ended itself is validated first."""
        if reason in FINAL_REASONS:
            self._finish()
            raise stopped(self.stop.reason)
        if self.archive.is_open:
            if self.is_save_requested() or self.saved_at != self.position.batches:
                self.save_now()
            self._wait_until_written()
        if self.stop.reason in SIGNAL_REASONS and self._instruments.shows_progress:
            saved = 'saved; continue with resume="latest"' if self.archive.is_open else "not saved: no checkpoint_dir"
            print_above_bars(f"trek: stopped after batch {self.position.batches}, {saved}.")
        raise stopped(self.stop.reason)

    def _next_check(self) -> float:
        """The number of batches after which something other than training may be due next."""
        due = [self.agenda.next_batch(self.position)]
        if self.world.is_distributed or self.group.is_elastic:
            due.append(self.agreement.next_batch)
        return min(*due, self._instruments.next_batch(self.position.batches))

    def _end_epoch(self) -> None:
        self.group.together("end_epoch", self._count_epoch)
        if not self._is_in_epochs:
            self._run_due_actions_at_epoch_end()

    def _count_epoch(self) -> None:
        self.report()
        self.position.end_epoch()
        self.optimization.end_epoch(self.position.epoch)
        self.journal.end_epoch(self.position.epoch - 1)

    def _end_custom_epoch(self, batches_before: int) -> None:
        """Count an epoch whose body left `train` early or did not call it."""
        if self.position.batches == batches_before and self.agenda.length.epochs is None:
            raise InputError(
                f"this run would never end: its length is {self._length}, but the loop read no batch from "
                "traveler.train(…). Read the training data through traveler.train(…), or give the length in epochs."
            )
        self.position.end_epoch()

    def _run_due_actions_at_epoch_end(self) -> None:
        """Validate and save at the end of an epoch, if due.

        Within `epochs` this runs after the whole body, so that the checkpoint includes the body's validation.
        """
        if self.position.epoch_batch == 0:
            self._run_due_actions()

    def _finish(self) -> None:
        """End a run: a last report, validation and checkpoint, unless just made."""
        self.report()
        if self.on_validation is not None:
            self.group.together("validation", self.on_validation)
        if self.archive.is_open and (self.is_save_requested() or self.saved_state != self.state_to_save()):
            self.save_now()
        self._wait_until_written()

    def _wait_until_written(self) -> None:
        """Where the leader may be lost while it writes, all workers wait, and another one saves again."""
        if self.group.is_elastic and self.archive.is_open:
            self.group.together("written", self._save_until_written)
        self.archive.wait()

    def _save_until_written(self) -> None:
        if self.strategy.any(self.world.is_leader and not self.archive.has_saved(self.position.batches)):
            self.save_together()
        self.archive.wait()
        self.strategy.barrier()
