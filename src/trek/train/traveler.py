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

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import nn

from trek.data.loaders import DataLoader, Loader
from trek.errors import InputError
from trek.train.artifacts import store_artifact
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, check_savable
from trek.train.checkpointing.stores import Storage
from trek.train.folders import check_places
from trek.train.jobs.hang_report import note_error
from trek.train.loggers.base import ArtifactRow, JobIdentity, Logger
from trek.train.loggers.choice import LoggerChoice, split_loggers
from trek.train.loop.data_wait import DataWait
from trek.train.loop.open_loop import open_loop
from trek.train.loop.optimization import StepUnit
from trek.train.loop.position import Position
from trek.train.loop.precision import OwnScaler, Precision
from trek.train.loop.stopping import SIGNAL_REASONS, StopOnSignals, Stopped, StopRequest, stopped
from trek.train.loop.training_loop import NO_CONTEXT
from trek.train.metrics.metric_sums import Reduction
from trek.train.settings import TrainSettings
from trek.train.trial_host import TrialHost, find_host
from trek.world import World
from trek.world.seeds import seed_everything

if TYPE_CHECKING:
    import pandas as pd

Model = TypeVar("Model", bound=nn.Module)

LENGTHS = (
    "max_length",
    "validation_period",
    "checkpoint_period",
    "checkpoint_policy",
    "report_period",
    "records_per_epoch",
    "initial_validation",
)
"""Settings that may still change when the Traveler is made."""


class Traveler:
    """The handle of one rank's training loop.

    Pass settings as one object or by name: `Traveler(precision="bf16", accumulate=4)`; see `TrainSettings`. Without a
    World, the Traveler is the entry point of its program, and reads the World and the trial from the environment. Files
    other than checkpoints (of loggers, traces) are written to `folder`, by default the current directory.
    """

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
        if world is not None and not isinstance(world, World):
            raise InputError(f"world must be a trek.World, got {world!r}.")
        stop, on_signals = stop or StopRequest(), NO_CONTEXT
        if world is None:
            world = World.from_env()
            host = find_host(world, stop=stop)
            on_signals = StopOnSignals(stop) if host is None else NO_CONTEXT
        chosen = TrainSettings.of(settings, **named)
        names, objects = split_loggers(loggers)
        check_places(checkpoint_dir=checkpoint_dir, resume=resume)
        if host is not None:
            chosen, folder = host.apply_to(chosen), host.folder
            checkpoint_dir, resume, owner, job = host.checkpoint_dir, host.resume, host.owner, host.job
            objects += host.loggers
        self.loop = loop = open_loop(
            chosen,
            world=world,
            stop=stop,
            on_signals=on_signals,
            host=host,
            folder=folder,
            checkpoint_dir=checkpoint_dir,
            resume=resume,
            loggers=objects,
            logger_names=names,
            trial=trial,
            owner=owner,
            job=job,
            wait=wait,
        )
        """The loop behind this handle."""
        self.stop = loop.stop
        self.folder = loop.folder
        self.group = loop.group
        self.strategy = loop.strategy
        self.optimization = loop.optimization
        self.journal = loop.journal
        self.archive = loop.archive

    @property
    def settings(self) -> TrainSettings:
        """The settings of the run."""
        return self.loop.settings

    @property
    def world(self) -> World:
        """This process among those that train now."""
        return self.loop.world

    @property
    def position(self) -> Position:
        """The position of the run in its data."""
        return self.loop.position

    @property
    def precision(self) -> Precision:
        """The precision of the run."""
        return self.optimization.precision

    @property
    def is_counted(self) -> bool:
        """Whether the batch at hand counts: a rank without a row of a short last batch works on a stand-in."""
        return self.loop.num_samples > 0

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.settings.seed

    @property
    def results(self) -> pd.DataFrame:
        """The table of epochs."""
        return self.journal.table.to_pandas()

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
        return self.loop.bound(source)

    def prefetch(self, row_ids: Callable[[Any], Mapping[str, torch.Tensor]]) -> None:
        """Pull rows of the next batch from servers while this one trains; `row_ids(batch)` gives its ids by table."""
        self.loop.feed.on_next = lambda batch: self.strategy.prefetch(row_ids(batch))

    def add_state(self, name: str, holder: Any) -> None:
        """Save and restore `holder` (with `state_dict` and `load_state_dict`) with every checkpoint."""
        self.loop.state.holders[name] = holder

    # -- the loop

    def set_lengths(self, **named: Any) -> None:
        """Change how long to train, and how often to validate, save and report: fields of TrainSettings.

        Call it before training begins. What the trial of an experiment decides is not changed.
        """
        if unknown := sorted(set(named) - set(LENGTHS)):
            raise InputError(f"set_lengths changes {', '.join(LENGTHS)}, got {unknown[0]!r}. Pass it to the Traveler.")
        self.loop.set_lengths(named)

    def use_scaler(self, scaler: torch.amp.GradScaler) -> None:
        """Unscale gradients with a scaler that the loop itself scales its losses with."""
        self.optimization.precision = OwnScaler(self.world.device, scaler, instead_of=self.precision)

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """Epoch numbers from the current position to the end: the `max_length` of the settings, else `count` epochs.

        A run with a `max_length` ends with a report, a validation if `on_validation` is set, and a checkpoint.
        """
        return self.loop.epochs(count)

    def train(self, data: Any) -> Iterator[Any]:
        """The remaining batches of the current epoch, up to the end of the run.

        A batch counts as trained once it is yielded.
        """
        return self.loop.train(data)

    def validate(self, data: Any, *, how: Mapping[str, Reduction] | None = None) -> Iterator[Any]:
        """One pass over validation data, with the models in evaluation mode and without gradients.

        In an elastic run, a pass that is interrupted begins again: count by `log`, which begins again with it.
        """
        return self.loop.validate(data, how=how)

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
        self.journal.log(
            {**metrics, **named} if metrics and named else metrics or named, num_samples=self.loop.num_samples
        )

    def report(self) -> dict[str, float]:
        """Reduce and report the training metrics since the last report; called on all ranks together."""
        return self.loop.report()

    # -- checkpoints and files

    def save(self) -> str | None:
        """Save everything, on all ranks together, and return the checkpoint's id on the leader.

        The checkpoint is taken where the run can continue to the bit: inside of a batch at the end of the batch, in the
        rest of an epoch's body at the end of the body, and elsewhere at once. It is written in the background.
        """
        return self.loop.save()

    def restore(self, resume: CheckpointFolder | Path | str | None = None) -> CheckpointFolder | None:
        """Resume from a checkpoint, by default the constructor's `resume`; call it after everything is added.

        Here a process of an elastic job becomes one of its workers.
        """
        return self.loop.restore(resume)

    def log_artifact(self, value: Any, name: str | None = None) -> None:
        """Keep a file with the run: a path, bytes, a matplotlib figure, a pandas or Arrow table, or an image.

        The suffix of `name` says how it is written; the same name again replaces the file. Only the leader's is kept,
        so that all ranks may call it.
        """
        if not self.world.is_leader or self.loop.is_dry:
            return
        stored, path = store_artifact(value, name, folder=self.folder / "artifacts")
        self.journal.log_artifact(
            ArtifactRow(
                name=stored,
                path=str(path),
                num_bytes=path.stat().st_size,
                batches=self.position.batches,
                time_s=time.time(),
            )
        )

    def barrier(self) -> None:
        """Wait for every rank."""
        self.group.together("barrier", self.strategy.barrier)

    # -- the end

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this Traveler is closed."""
        self.loop.closing.callback(callback)

    def close_at_exit(self) -> None:
        """Close this Traveler when the program ends without having closed it."""
        self.loop.close_at_exit()

    def close(self) -> None:
        """Take a checkpoint that was requested before the loop was left, and close everything."""
        self.loop.close()

    def __enter__(self) -> Self:
        note_error(None)  # clears the error of an earlier Traveler
        self.loop.closing.enter_context(self.loop.on_signals)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            note_error(tb)
            self.loop.has_failed = not isinstance(error, Stopped) or error.reason == "dismissed"
        self.close()
        if error is not None and (cause := self.strategy.cause_of(error)) is not None:
            raise cause from error
        is_fixed = not self.group.is_elastic  # an elastic job has done everything that was to be done
        handles_signals = self.loop.on_signals is not NO_CONTEXT
        if error is None and is_fixed and handles_signals and self.stop.reason in SIGNAL_REASONS:
            raise stopped(self.stop.reason)  # it came after the last batch
