"""`determined.pytorch`: PyTorchTrial and what goes with it, in the old spelling and the new one.

A PyTorchTrial is a `trek.Trial`: `trek experiment create`, `trek.fit` and `Trainer` here all train it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

import trek
from trek.compat.determined.callback import PyTorchCallback as PyTorchCallback
from trek.compat.determined.distributed import TrialDistributedContext
from trek.compat.determined.experimental_context import PyTorchExperimentalContext, in_mixed_precision
from trek.errors import ConfigError, InputError

_T = TypeVar("_T")
TorchData: TypeAlias = dict[str, torch.Tensor] | list[torch.Tensor] | tuple[torch.Tensor, ...] | torch.Tensor
DataLoader = trek.DataLoader
LRScheduler = trek.LRScheduler
MetricReducer = trek.Reducer
Batch = trek.batches
Epoch = trek.epochs
Record = trek.records
TrainUnit: TypeAlias = Any
reset_parameters = trek.reset_parameters
to_device = trek.to_device


class Reducer(StrEnum):
    """How validation metrics are reduced over batches: what `evaluation_reducer` returns."""

    AVG = "avg"
    SUM = "sum"
    MAX = "max"
    MIN = "min"


class PyTorchTrialContext(trek.TrialContext):
    """`trek.TrialContext`, with the names and arguments that it does not have."""

    def __init__(self, traveler: trek.Traveler, **named: Any) -> None:
        super().__init__(traveler, **named)
        self._scalers: list[Any] = []
        chosen = traveler.settings.loggers
        self._logs_to_tensorboard = "tensorboard" in [one if isinstance(one, str) else one["name"] for one in chosen]
        self.distributed: Any = TrialDistributedContext(self.distributed)
        self.experimental = PyTorchExperimentalContext(traveler)
        self.lr_schedulers: list[Any] = []
        """Those of `wrap_lr_scheduler`, and of a trial's `create_lr_scheduler`."""

    @property
    def models(self) -> list[nn.Module]:
        """The wrapped models."""
        return list(self.traveler.optimization.models)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The wrapped optimizers."""
        return list(self.traveler.optimization.optimizers)

    def get_model(self) -> nn.Module:
        """The only model, in `train_batch` and later."""
        return _only(self.models, "model")

    def get_optimizer(self) -> torch.optim.Optimizer:
        """The only optimizer."""
        return _only(self.optimizers, "optimizer")

    def get_lr_scheduler(self) -> Any:
        """The only scheduler; None without one."""
        return _only(self.lr_schedulers, "scheduler") if self.lr_schedulers else None

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool = False,
        average_aggregated_gradients: bool = True,
    ) -> torch.optim.Optimizer:
        """Register an optimizer. Gradients are accumulated by a setting of the experiment, for all optimizers alike."""
        accumulate = self.traveler.settings.accumulate
        if backward_passes_per_step not in (1, accumulate):
            raise ConfigError(
                f"backward_passes_per_step must be optimizations.aggregation_frequency of the config ({accumulate}), "
                f"got {backward_passes_per_step!r}. Set it there, and call step_optimizer after every batch."
            )
        if fp16_compression or not average_aggregated_gradients:
            raise ConfigError(
                "fp16_compression and average_aggregated_gradients=False are not supported: gradients are averaged by "
                "sample in their own precision. Remove these arguments."
            )
        return super().wrap_optimizer(optimizer)

    def wrap_lr_scheduler(  # type: ignore[override]  # Determined's name of the scheduler
        self, lr_scheduler: Any, step_mode: LRScheduler.StepMode | None = None, frequency: int = 1
    ) -> Any:
        """Step a scheduler as `step_mode` says; a `LRScheduler` has one."""
        self.lr_schedulers.append(super().wrap_lr_scheduler(lr_scheduler, step_mode, frequency))
        return self.lr_schedulers[-1]

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Add a custom metric."""
        return super().wrap_reducer(reducer, name, for_training=for_training, for_validation=for_validation)

    def wrap_scaler(self, scaler: Any) -> Any:
        """Take the Trial's own gradient scaler."""
        self._scalers.append(scaler)
        return super().wrap_scaler(scaler)

    def step_optimizer(  # type: ignore[override]  # `scaler` is at the place of arguments that Determined has not
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Iterable[nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> bool:
        """Sync gradients, clip them, step, clear gradients; returns whether it stepped."""
        if scaler is not None and not any(scaler is one for one in self._scalers):
            raise InputError("step_optimizer got a scaler that was not wrapped. Call context.wrap_scaler in __init__.")
        return super().step_optimizer(optimizer, clip_grads, auto_zero_grads)

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Backward pass from a mean loss."""
        if gradient is not None or create_graph:
            raise InputError("backward takes a scalar loss; gradient and create_graph are not supported. Remove them.")
        super().backward(loss, retain_graph=retain_graph)

    def autocast_forward_pass(self, to_wrap: nn.Module) -> nn.Module:
        """The model, with a forward pass in mixed precision, to be wrapped next; a scaler of `wrap_scaler` scales."""
        return in_mixed_precision(to_wrap, device=self.device)

    def configure_apex_amp(self, models: Any, optimizers: Any, enabled: bool | None = True, **settings: Any) -> Any:
        """Refused where it would use Apex: mixed precision is a setting."""
        if enabled:
            raise ConfigError("configure_apex_amp is not supported. Set training.precision to fp16 or bf16, remove it.")
        return models, optimizers

    def set_profiler(self, *args: Any, **named: Any) -> None:
        """Refused: profiling is a setting."""
        _refuse_profiling(enabled=True)

    def get_initial_batch(self) -> int:
        """How many batches are trained. While data are built it is 0: they are continued where the run was saved."""
        return self.traveler.position.batches

    def get_enable_tensorboard_logging(self) -> bool:
        """Whether a logger writes for TensorBoard."""
        return self._logs_to_tensorboard

    def current_train_epoch(self) -> int:
        """The epoch of the current batch, from 0."""
        return self.traveler.position.epoch

    def current_train_batch(self) -> int:
        """The current batch, from 0."""
        return max(self.traveler.position.batches - 1, 0)

    def is_epoch_start(self) -> bool:
        """Whether the current batch is the first of its epoch."""
        return self.traveler.position.epoch_batch <= 1

    def is_epoch_end(self) -> bool:
        """Whether the current batch is the last of its epoch."""
        return self.traveler.position.epoch_batch == self.traveler.loop.plan.epoch_batches

    def get_tensorboard_path(self) -> Path:
        """Where a writer of the script's own may write."""
        return self.traveler.folder


TrialContext = PyTorchTrialContext


class PyTorchTrial(trek.Trial):
    """`trek.Trial`, with this context."""

    context_class = PyTorchTrialContext
    trial_context_class = PyTorchTrialContext


@contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: Any = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = False,
    checkpoint_dir: Path | str = "checkpoints",
) -> Iterator[PyTorchTrialContext]:
    """The context of a Trial that this script trains itself: in a trial, that trial's; else a local one.

    Processes are those that the script was started with, so `distributed` is not needed. Outside of a trial,
    checkpoints are saved to `checkpoint_dir`.
    """
    found = trek.trial_info()
    config = found.config if found else dict(exp_conf or {})
    names = ("tensorboard",) if enable_tensorboard_logging else ()
    with trek.Traveler(accumulate=aggregation_frequency, checkpoint_dir=checkpoint_dir, loggers=names) as traveler:
        context = PyTorchTrialContext(
            traveler,
            hparams=found.hparams if found else dict(hparams or {}),
            data=config.get("data"),
            experiment_config=config,
            experiment_id=found.experiment_id if found else 0,
            trial_id=found.trial_id if found else 0,
        )
        context._logs_to_tensorboard |= enable_tensorboard_logging
        yield context


class Trainer:
    """Trains a PyTorchTrial in this script: `with init(…) as ctx: Trainer(MyTrial(ctx), ctx).fit(…)`."""

    def __init__(self, trial: trek.Trial, context: trek.TrialContext) -> None:
        self._traveler = context.traveler
        self._trainer = trek.Trainer(trial, context)

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: int | None = None,
    ) -> None:
        """Refused where it would profile: that is a setting of the config."""
        _refuse_profiling(enabled)

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit | None = None,
        checkpoint_policy: str = "best",
        latest_checkpoint: str | Path | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> None:
        """Train to `max_length`; a trial's own length, periods and checkpoint take precedence.

        `test_mode` trains and validates one batch.
        """
        _refuse_profiling(profiling_enabled)
        length = Batch(1) if test_mode else max_length
        if length is None and self._traveler.settings.max_length is None:
            raise ConfigError("fit needs a max_length outside of a trial. Pass Batch(n), Record(n) or Epoch(n).")
        periods = {"validation_period": validation_period, "checkpoint_period": checkpoint_period}
        self._traveler.set_lengths(
            **({"max_length": length} if length is not None else {}),
            **{name: period for name, period in periods.items() if period is not None},
            report_period=_report_period(reporting_period),
            checkpoint_policy=checkpoint_policy,
            initial_validation=step_zero_validation,
        )
        self._trainer.fit(resume=_opened(latest_checkpoint))


def _refuse_profiling(enabled: bool) -> None:
    if enabled:
        raise ConfigError("a script cannot switch on the profiler here. Set training.profile in the config.")


def _only(found: list[_T], what: str) -> _T:
    if len(found) != 1:
        raise InputError(f"the trial has {len(found)} {what}s. Keep them where they are wrapped.")
    return found[0]


def _report_period(period: TrainUnit | None) -> int:
    if period is None:
        return 100
    if getattr(period, "unit", None) != "batches":
        raise ConfigError(f"reporting_period must be Batch(n), got {period!r}.")
    return int(period.count)


def _opened(checkpoint: str | Path | None) -> trek.Checkpoint | None:
    return None if checkpoint is None else trek.Checkpoint(checkpoint)
