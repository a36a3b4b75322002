"""Trial and TrialContext: the declarative interface. A Trial defines what is trained and what to do with a batch.

How long it trains, on how many processes, and where it is recorded are settings of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import nn

from trek.data.loaders.batch_size import PerSlotBatchSize
from trek.errors import ConfigError, InputError
from trek.train.callbacks.callback import Callback
from trek.train.loggers.tensorboard import NO_WRITER, open_writer, without_writing
from trek.train.loop.feed import to_device
from trek.train.loop.optimization import StepUnit
from trek.train.lr_scheduler import LRScheduler
from trek.train.metrics.reducers import FunctionReducer, NamedReducer, Reducer
from trek.world import World

if TYPE_CHECKING:
    from trek.train.traveler import Traveler


class TrialContext:
    """What a Trial can access: its hyperparameters, its World, and the Traveler for manual steps."""

    def __init__(
        self,
        traveler: Traveler,
        *,
        hparams: Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        experiment_config: Mapping[str, Any] | None = None,
        experiment_id: int = 0,
        trial_id: int = 0,
    ) -> None:
        self.traveler = traveler
        self.distributed = DistributedContext(traveler)
        self._hparams = dict(hparams)
        self._data = dict(data or {})
        self._config = dict(experiment_config or {})
        self._experiment_id = experiment_id
        self._trial_id = trial_id
        self._writer: Any = None

    def get_hparam(self, name: str) -> Any:
        """One hyperparameter; nested ones are addressed by a dotted name."""
        value: Any = self._hparams
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                known = ", ".join(sorted(self._hparams)) or "none"
                raise ConfigError(
                    f"hyperparameter {name!r} not found. Add it to the hyperparameters; known are: {known}."
                )
            value = value[part]
        return value

    def get_hparams(self) -> dict[str, Any]:
        """All hyperparameters."""
        return dict(self._hparams)

    def get_data_config(self) -> dict[str, Any]:
        """The `data` section of the config, or the `data` passed to `trek.fit`."""
        return dict(self._data)

    def get_experiment_config(self) -> dict[str, Any]:
        """The whole config of the experiment; empty outside an experiment."""
        return dict(self._config)

    def get_global_batch_size(self) -> int:
        """Number of records in one batch over all processes: the hyperparameter `global_batch_size`."""
        size = self.get_hparam("global_batch_size")
        slots = self.traveler.world.batch_shares
        if isinstance(size, bool) or not isinstance(size, int) or size < slots:
            raise ConfigError(
                f"global_batch_size must be a whole number of at least one record per process, got {size!r} for "
                f"{slots} process(es). Increase global_batch_size, or use fewer processes."
            )
        return size

    def get_per_slot_batch_size(self) -> int:
        """Number of records of one batch on this process, rounded down.

        A DataLoader with this batch size still reads the whole global batch, divided as evenly as possible.
        """
        return PerSlotBatchSize(self.get_global_batch_size(), num_workers=self.traveler.world.batch_shares)

    def get_trial_seed(self) -> int:
        """The seed of all random number generators."""
        return self.traveler.seed

    def get_experiment_id(self) -> int:
        """Id of the experiment; 0 outside an experiment."""
        return self._experiment_id

    def get_trial_id(self) -> int:
        """Id of the trial; 0 outside an experiment."""
        return self._trial_id

    def get_stop_requested(self) -> bool:
        """Whether the trial has been asked to stop."""
        return self.traveler.stop.is_set

    def set_stop_requested(self, stop_requested: bool = True) -> None:
        """End the trial with a last validation and checkpoint, as at its full length.

        One process ends after this batch. Several end after the same batch, which is at most 16 batches or about two
        seconds later; a request in a validation, or between two epochs, takes effect there.
        """
        if stop_requested:
            self.traveler.stop.request("user")

    @property
    def device(self) -> torch.device:
        """The device of batches and models."""
        return self.traveler.world.device

    # -- manual steps: several models and optimizers, driven by `train_batch` itself

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Place and wrap a model; use the returned model for training."""
        return self.traveler.add_model(model)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Register an optimizer for `step_optimizer`."""
        return self.traveler.add_optimizer(optimizer)

    def wrap_lr_scheduler(
        self, scheduler: Any, step_mode: StepUnit | LRScheduler.StepMode | None = None, frequency: int = 1
    ) -> Any:
        """Step a scheduler per "step", "batch" or "epoch"; with "manual", it is only saved and restored.

        The step mode may also be one of `trek.LRScheduler.StepMode`, and `scheduler` a `trek.LRScheduler` that has one.
        """
        if isinstance(scheduler, LRScheduler):
            scheduler, step_mode, frequency = scheduler.scheduler, scheduler.step_mode, scheduler.frequency
        if step_mode is None:
            raise InputError("wrap_lr_scheduler needs a step_mode: 'step', 'batch', 'epoch' or 'manual'.")
        return self.traveler.add_scheduler(scheduler, per=cast(StepUnit, str(step_mode)), every=frequency)

    def wrap_scaler(self, scaler: torch.amp.GradScaler) -> torch.amp.GradScaler:
        """Take the gradient scaler that `train_batch` scales its losses with, instead of `precision="fp16"`.

        Clipping and `step_optimizer` unscale with it; the Trial itself calls `scale` and `update`.
        """
        self.traveler.use_scaler(scaler)
        return scaler

    def wrap_reducer(
        self,
        reducer: Reducer | Callable[[list[Any]], Any],
        name: str | None = None,
        *,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Reducer:
        """Add a custom metric: a Reducer, or a function of all values that were passed to `update`."""
        wrapped = reducer if isinstance(reducer, Reducer) else FunctionReducer(reducer)
        self.traveler.journal.reducers.append(NamedReducer(wrapped, name, for_training, for_validation))
        return wrapped

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        """Backward pass from a mean loss; `retain_graph` for another one through the same graph."""
        with self.traveler.precision.no_autocast():
            self.traveler.backward(loss, retain_graph=retain_graph)

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Iterable[nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ) -> bool:
        """Sync gradients, clip them, step, clear gradients; returns whether it stepped.

        `clip_grads` is a function that clips the gradients of the parameters it is given. Without `auto_zero_grads`,
        the gradients are left for the caller to clear.
        """
        with self.traveler.precision.no_autocast():
            return self.traveler.optimization.step(
                optimizer,
                clip_norm=clip_norm,
                clip_value=clip_value,
                clip_grads=clip_grads,
                clears_gradients=auto_zero_grads,
            )

    def to_device(self, data: Any) -> Any:
        """`data` with every tensor in it on the device of this process."""
        return to_device(data, self.device)

    def get_tensorboard_writer(self) -> Any:
        """A `torch.utils.tensorboard.SummaryWriter` in the run's folder; ranks other than the leader have their own.

        It is opened at the first call and closed with the run.
        """
        if self.traveler.loop.is_dry:
            return NO_WRITER
        if self._writer is None:
            world, folder = self.traveler.world, self.traveler.folder
            self._writer = open_writer(folder if world.is_leader else folder / f"rank_{world.rank}")
            self.traveler.on_close(self._writer.close)
        return self._writer

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Within the block, the TensorBoard writer writes nothing."""
        if self._writer is None:
            yield
        else:
            with without_writing(self._writer):
                yield

    def log_artifact(self, value: Any, name: str | None = None) -> None:
        """Keep a file with the run; see `Traveler.log_artifact`."""
        self.traveler.log_artifact(value, name)

    def autocast(self) -> AbstractContextManager[Any]:
        """A context for forward passes outside of `train_batch` and `evaluate_batch`, which already run in it."""
        return self.traveler.autocast()


class DistributedContext:
    """The Trial's rank and the size of its World, and values passed between ranks, which all of them call together."""

    def __init__(self, traveler: Traveler) -> None:
        self._traveler = traveler

    @property
    def _world(self) -> World:
        return self._traveler.world

    @property
    def rank(self) -> int:
        """0 to size - 1."""
        return self._world.rank

    @property
    def local_rank(self) -> int:
        """The rank on this machine."""
        return self._world.local_rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self._world.size

    @property
    def local_size(self) -> int:
        """Number of processes on this machine."""
        return self._world.local_size

    def get_rank(self) -> int:
        """0 to size - 1."""
        return self.rank

    def get_local_rank(self) -> int:
        """The rank on this machine."""
        return self.local_rank

    def get_size(self) -> int:
        """Number of processes."""
        return self.size

    def get_num_agents(self) -> int:
        """Number of machines."""
        return self._world.num_nodes

    def allgather(self, value: Any) -> list[Any]:
        """What every rank passed, by rank; plain values, tensors and arrays."""
        return list(self._traveler.strategy.gather(value))

    def gather(self, value: Any) -> list[Any] | None:
        """What every rank passed, by rank, on the leader; None elsewhere."""
        every = self.allgather(value)
        return every if self._world.is_leader else None

    def broadcast(self, value: Any) -> Any:
        """What the leader passed."""
        return self._traveler.strategy.broadcast(value)


class Trial:
    """Base class of Trials.

    Simple form: define `build_model`, `optimizer` and a `train_batch` that returns the loss, or a dict with "loss" and
    other metrics; Trek runs the backward pass and the steps. Manual form: leave out `build_model`, wrap models and
    optimizers in `__init__` through the context, and call `backward` and `step_optimizer` in `train_batch`.

    `train_batch` may declare any of `batch`, `model`, `epoch_idx`, `batch_idx`; `evaluate_batch` any of `batch`,
    `model`, `batch_idx`.
    """

    def __init__(self, context: TrialContext) -> None:
        self.context = context

    def build_training_data_loader(self) -> Any:
        """A trek.DataLoader, a torch DataLoader, or any iterable of batches."""
        raise NotImplementedError

    def build_validation_data_loader(self) -> Any:
        """The validation data, in any of the same forms."""
        raise NotImplementedError

    def build_model(self) -> nn.Module:
        """The model."""
        raise NotImplementedError

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of `model`'s parameters."""
        raise NotImplementedError

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        """A torch scheduler, stepped per epoch, or `(scheduler, "step")` for another unit; None for no scheduler.

        A `trek.LRScheduler` says both.
        """
        return None

    def row_ids(self, batch: Any) -> Mapping[str, torch.Tensor]:
        """The ids that `train_batch` looks up in tables of `trek.nn.Embedding`, by table, if they can be known before.

        With parameter servers, their rows are then pulled while the batch before is trained.
        """
        raise NotImplementedError

    def build_callbacks(self) -> Mapping[str, Callback]:
        """Callbacks by name."""
        return {}

    def evaluation_reducer(self) -> Any:
        """How validation metrics are reduced: "avg" (by sample), "sum", "max", "min", or a dict by name."""
        return "avg"

    train_batch: Any
    evaluate_batch: Any
    evaluate_full_dataset: Any
    predict_batch: Any
    """What a served model answers, as a tensor or a dict of tensors by name; declares any of `batch` and `model`.

    Without it, that is the output of the model in `evaluate_batch`. `batch` has the form of a training batch, without
    the parts that are no `inputs`.
    """
    inputs: ClassVar[Collection[str] | None] = None
    """The names of the parts of a training batch that a served model takes; the others are None in `batch`.

    Without it, they are all parts that `predict_batch` or `evaluate_batch` reads on the way to the answer.
    """
    preprocess: Any
    """From the inputs of a request, a dict of NumPy arrays, to a dict by the names in a training batch."""
    postprocess: Any
    """From what the model returned, a dict of NumPy arrays with one row for each row of input, to what is answered."""
    context_class: ClassVar[type[TrialContext]] = TrialContext
    """What the Trial is given: a subclass of TrialContext where more names are needed than it has."""


def reset_parameters(model: nn.Module) -> None:
    """Call `reset_parameters` on every module that has such a method."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
