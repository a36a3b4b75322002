"""Trainer: drives a Trial through a Traveler, which owns the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from torch import nn

from trek.data.loaders import Loader
from trek.data.loaders.dataloader import column_names
from trek.errors import ConfigError, EntrypointError, InputError
from trek.system.urls import is_remote
from trek.train.callbacks.callback import Callback, check_callback
from trek.train.checkpointing.batch_signature import describe_batch
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.declared_arguments import with_declared_arguments
from trek.train.dry_pass import run_dry
from trek.train.loggers.base import CheckpointRow, Logger
from trek.train.loop.capture import CapturedStep
from trek.train.loop.device_rates import DeviceRates
from trek.train.loop.feed import to_device
from trek.train.loop.optimizer_settings import naming_number_texts
from trek.train.loop.stopping import Stopped
from trek.train.lr_scheduler import LRScheduler
from trek.train.metrics.metric_sums import Reduction
from trek.train.traveler import Traveler
from trek.train.trial import Trial, TrialContext
from trek.train.validation_data import open_validation_data
from trek.world import World


class Trainer:
    """Trains one Trial to the length set in its Traveler, which also decides when to validate and save.

    The Trial is given by its class, or as an object that was made with the same context.
    """

    def __init__(self, trial: type[Trial] | Trial, context: TrialContext) -> None:
        check_trial_class(type(trial) if isinstance(trial, Trial) else trial)
        self.traveler: Traveler = context.traveler
        self._loop = self.traveler.loop
        self.context = context
        with naming_number_texts(context.get_hparams()):  # optimizers are made in __init__, or by `optimizer`
            self.trial = trial if isinstance(trial, Trial) else trial(context)
            self.model = self._build_model()
        data = self.trial.build_training_data_loader()
        self.loader = self._loop.bind(data)
        self._column_names = column_names(data)
        self._is_described = False
        self._validation_data = self.trial.build_validation_data_loader()
        self.validation_loader = self._open_validation_data()
        self.callbacks = dict(self.trial.build_callbacks() or {})
        self._train_batch = with_declared_arguments(
            self.trial.train_batch, ("batch", "model", "epoch_idx", "batch_idx")
        )
        if not self.evaluates_full:
            self._evaluate_batch = with_declared_arguments(self.trial.evaluate_batch, ("batch", "model", "batch_idx"))
        self._captured = self._make_captured() if self.traveler.settings.capture else None
        self._loop.has_captured_step = self._captured is not None
        self._validated_at = -1
        self._best_score: float | None = None
        self._connect_callbacks()
        if getattr(type(self.trial), "row_ids", Trial.row_ids) is not Trial.row_ids:
            self.traveler.prefetch(self.trial.row_ids)

    def fit(self, *, resume: CheckpointFolder | Path | str | None = None) -> None:
        """Train from the Traveler's position to the end; a stop request ends it earlier with everything saved.

        `resume` is the checkpoint to begin with, by default the Traveler's.
        """
        self._callback_entries = _CallbackEntries(self.callbacks)
        self.traveler.add_state("extras", self._callback_entries)
        self.traveler.add_state("trainer", self)
        restored = self.traveler.restore(resume)
        self._call("on_trial_startup", self.traveler.position.batches, restored.uuid if restored else None)
        try:
            self._call("on_training_start")
            if restored is None:
                run_dry(self, self.traveler.settings.sanity_check)
            if self.traveler.settings.initial_validation and self.traveler.position.batches == 0:
                self.traveler.group.together("initial_validation", self.validate)
            for epoch in self.traveler.epochs():
                self._train_epoch(epoch)
        except Stopped as stop:
            if stop.reason == "dismissed":
                raise
        finally:
            self._call("on_trial_shutdown")

    def validate(self) -> dict[str, float]:
        """Run one validation over all ranks and report its metrics."""
        if self.traveler.world.generation != self._bound_to:  # the workers have changed
            self.validation_loader = self._open_validation_data()
        self._call("on_validation_start")
        self._call("on_validation_epoch_start")
        metrics = self._evaluate_full() if self.evaluates_full else self._evaluate_batches()
        self._validated_at = self.traveler.position.batches
        self._call("on_validation_end", metrics)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """The Trainer's part of a checkpoint."""
        return {"best_score": self._best_score, "validated_at": self._validated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._best_score = state["best_score"]
        self._validated_at = state["validated_at"]

    # -- the run

    def _train_epoch(self, epoch: int) -> None:
        position = self.traveler.position
        if position.epoch_batch == 0:
            self._call("on_training_epoch_start", epoch)
        for batch in self.traveler.train(self.loader):
            self.train_one(batch)
        if position.epoch > epoch:
            self._call("on_training_epoch_end", epoch)

    def train_one(self, batch: Any) -> None:
        """Train one batch of the loop, and log its metrics."""
        if not self._is_described:
            self._is_described = True
            self.traveler.archive.describe_batches(describe_batch(batch, names=self._column_names))
        if self.model is None:
            position = self.traveler.position
            with self.traveler.autocast():
                out = self._train_batch(batch, None, position.epoch, position.batches - 1)
            if out is not None:
                self.traveler.log(_as_metrics(out))
            return
        optimization = self.traveler.optimization
        if self._captured is not None:
            metrics = self._captured(batch)
            if optimization.ends_group:
                optimization.count_step(optimization.optimizers[0])
        else:
            metrics = self._backward(batch)
            optimization.step()
        self.traveler.log(metrics)

    def _backward(self, batch: Any) -> Mapping[str, Any]:
        """Forward and backward pass of the simple form."""
        position = self.traveler.position
        with self.traveler.precision.autocast():
            returned = self._train_batch(batch, self.model, position.epoch, position.batches - 1)
        metrics = _with_loss(returned)
        self.traveler.optimization.backward(metrics["loss"])
        return metrics

    def _device_step(self, batch: Any) -> Mapping[str, Any]:
        """The part of a step that is captured: everything that runs on the device."""
        metrics = self._backward(batch)
        if self.traveler.optimization.ends_group:
            self.traveler.optimization.apply_gradients(self.traveler.optimization.optimizers[0])
        return metrics

    def _make_captured(self) -> CapturedStep:
        if self.model is None:
            raise ConfigError(
                "capture is not supported for a Trial that steps its optimizers itself. Define build_model and "
                "optimizer, or train without capture."
            )
        if self.traveler.world.is_distributed or self.traveler.precision.name == "fp16":
            raise ConfigError(
                "capture requires one process and fp32 or bf16. Change these settings, or train without capture."
            )
        optimization, device = self.traveler.optimization, self.context.device
        optimization.keeps_gradients = self.traveler.settings.accumulate > 1
        return CapturedStep(
            self._device_step,
            device=device,
            part=lambda: optimization.part,
            make_rates=lambda: DeviceRates(optimization.optimizers, device=device),
        )

    def _validate_and_keep_best(self) -> None:
        """Validate, unless this was already done at this position; save as the checkpoint policy says."""
        if self._validated_at == self.traveler.position.batches:
            return
        score = self._loop.goal.score(self.validate())
        is_best = score is not None and (self._best_score is None or score < self._best_score)
        if is_best:
            self._best_score = score
        policy = self.traveler.settings.checkpoint_policy
        if self.traveler.archive.is_open and (policy == "all" or (policy == "best" and is_best)):
            self.traveler.save()

    # -- validation

    def _evaluate_batches(self) -> dict[str, float]:
        keeps_outputs = any(_overrides(c, "on_validation_epoch_end") for c in self.callbacks.values())
        outputs: list[Any] = []
        has_returned = False
        for index, batch in enumerate(self._loop.validation_batches(self.validation_loader)):
            returns, out = self.evaluate_one(batch, index)
            has_returned = has_returned or returns
            if keeps_outputs:
                outputs.append(out)
        self._call("on_validation_epoch_end", outputs)
        metrics = self._loop.end_validation(how=self.reductions())
        if not (metrics or has_returned):
            self.refuse_validation_without_result()
        return metrics

    def evaluate_one(self, batch: Any, index: int) -> tuple[bool, Mapping[str, Any]]:
        """Evaluate one batch of a validation, and log its metrics; also whether anything was returned."""
        with self.traveler.autocast():
            returned = self._evaluate_batch(batch, self.model, index)
            out = _checked_metrics(returned, "evaluate_batch")
        if out:
            self.traveler.log(out)
        return returned is not None, out

    def refuse_validation_without_result(self) -> NoReturn:
        """Raise `InputError` for an evaluate_batch that returns nothing."""
        raise _without_metrics("evaluate_batch returned None for every batch")

    def _evaluate_full(self) -> dict[str, float]:
        """The leader evaluates all data and broadcasts the result."""
        self._loop.begin_validation()
        found: dict[str, float] | None = None
        if self.traveler.world.is_leader:
            evaluate = with_declared_arguments(self.trial.evaluate_full_dataset, ("data_loader", "model"))
            with torch.no_grad(), self.traveler.autocast(), self._loop.instruments.unhurried():
                returned = evaluate(_OnDevice(self.validation_loader, self.context.device), self.model)
                out = _checked_metrics(returned, "evaluate_full_dataset")
            found = None if returned is None else self.traveler.journal.scalars.of(out)
        self._call("on_validation_epoch_end", [])
        found = self.traveler.strategy.broadcast(found)
        metrics = self._loop.end_validation(extra=found or {})
        if found is None and not metrics:
            raise _without_metrics("evaluate_full_dataset returned None")
        return metrics

    def reductions(self) -> dict[str, Reduction]:
        """Reductions by metric name; a single reduction applies to every logged metric."""
        how = self.trial.evaluation_reducer()
        if isinstance(how, str):
            return {name: cast(Reduction, how) for name in self.traveler.journal.logged_names()}
        return dict(how)

    # -- building

    def _build_model(self) -> nn.Module | None:
        """In the simple form, the wrapped model, with its optimizer and scheduler added; in the manual form, None."""
        if type(self.trial).build_model is Trial.build_model:
            if not self.traveler.optimization.models:
                raise EntrypointError(
                    f"{type(self.trial).__name__} has no model. Define build_model, or wrap models in __init__ with "
                    "context.wrap_model."
                )
            return None
        model = self.traveler.add_model(self.trial.build_model())
        optimizer = self.traveler.add_optimizer(self.trial.optimizer(model))
        scheduler = self.trial.create_lr_scheduler(optimizer)
        if isinstance(scheduler, LRScheduler):
            self.context.wrap_lr_scheduler(scheduler)
        elif isinstance(scheduler, tuple):
            self.traveler.add_scheduler(scheduler[0], per=scheduler[1])
        elif scheduler is not None:
            self.traveler.add_scheduler(scheduler, per="epoch")
        return model

    @property
    def evaluates_full(self) -> bool:
        """Whether the Trial evaluates all data at once."""
        return callable(getattr(self.trial, "evaluate_full_dataset", None))

    def _open_validation_data(self) -> Loader:
        """The validation data of this rank; with `evaluate_full_dataset`, all of it for the leader."""
        self._bound_to = self.traveler.world.generation
        world = World() if self.evaluates_full and self.traveler.world.is_leader else self.traveler.world
        return open_validation_data(self._validation_data, world=world, seed=self.traveler.seed)

    def _connect_callbacks(self) -> None:
        for name, callback in self.callbacks.items():
            check_callback(name, callback)
            self.traveler.add_state(f"callback_{name}", callback)
        self.traveler.journal.on_report = self._on_report
        self._loop.on_validation = self._validate_and_keep_best
        self.traveler.journal.add_logger(_CheckpointHooks(self))
        if any(_overrides(callback, "on_before_optimizer_step") for callback in self.callbacks.values()):
            if self._captured is not None:
                raise ConfigError(
                    "capture records a step, so callbacks with on_before_optimizer_step would not be called. Set "
                    "clip_norm or clip_value instead, or train without capture."
                )
            self.traveler.optimization.before_step = partial(self._call, "on_before_optimizer_step")

    def _on_report(self, metrics: dict[str, float]) -> None:
        self._call("on_training_workload_end", metrics, [])

    def _call(self, hook: str, *args: Any) -> None:
        for callback in self.callbacks.values():
            getattr(callback, hook)(*args)


class _OnDevice:
    """The loader passed to `evaluate_full_dataset`: re-iterable, with batches on the device."""

    def __init__(self, loader: Loader, device: torch.device) -> None:
        self._loader = loader
        self._device = device

    def __len__(self) -> int:
        if self._loader.num_batches is None:
            raise TypeError("the length of this data is unknown")
        return self._loader.num_batches

    def __iter__(self) -> Iterator[Any]:
        return (to_device(batch.data, self._device) for batch in self._loader.batches(0))


class _CheckpointHooks(Logger):
    """Calls the callbacks when a checkpoint has been written."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def log_checkpoint(self, row: CheckpointRow) -> None:
        self._trainer._call("on_checkpoint_write_end", row.path if is_remote(row.path) else Path(row.path))
        self._trainer._call("on_checkpoint_upload_end", row.uuid)


class _CallbackEntries:
    """The entries that callbacks add to a checkpoint."""

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._callbacks = callbacks

    def state_dict(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for callback in self._callbacks.values():
            callback.on_checkpoint_save_start(entries)
        return entries

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for callback in self._callbacks.values():
            callback.on_checkpoint_load_start(state)


def check_trial_class(trial_class: type[Any]) -> None:
    """Raise `EntrypointError` unless `trial_class` can be trained and validated."""
    name = getattr(trial_class, "__name__", repr(trial_class))
    if not (isinstance(trial_class, type) and issubclass(trial_class, Trial)):
        raise EntrypointError(f"{name} is not a Trial. Make it a subclass of trek.Trial.")
    missing = [
        method
        for method in ("build_training_data_loader", "build_validation_data_loader", "train_batch")
        if getattr(trial_class, method, None) in (None, getattr(Trial, method, None))
    ]
    if not any(callable(getattr(trial_class, m, None)) for m in ("evaluate_batch", "evaluate_full_dataset")):
        missing.append("evaluate_batch")
    if missing:
        raise EntrypointError(f"{name} must define {', '.join(missing)}. See trek.Trial.")


def _checked_metrics(out: Any, method: str) -> Mapping[str, Any]:
    if hasattr(out, "compute") and hasattr(out, "items"):  # a torchmetrics.MetricCollection, which has its own names
        return {"metrics": out}
    if out is not None and not isinstance(out, Mapping):
        raise InputError(f"{method} must return a dict of metrics by name, got {type(out).__name__}.")
    return out or {}


def _without_metrics(what: str) -> InputError:
    return InputError(
        f"{what}, and the validation has no metrics. Return a dict of metrics by name, such as "
        "{'validation_loss': loss}, or {} for a validation without metrics."
    )


def _as_metrics(out: Any) -> Mapping[str, Any]:
    return out if isinstance(out, Mapping) else {"loss": out}


def _with_loss(returned: Any) -> Mapping[str, Any]:
    """What train_batch of the simple form returned, as metrics; their loss is a tensor."""
    if returned is None:
        raise InputError(
            "train_batch returned None. Return the loss, or a dict of metrics with a 'loss'; a Trial with build_model "
            "leaves backward() and the optimizer's step to Trek."
        )
    metrics = _as_metrics(returned)
    if "loss" not in metrics:
        raise InputError(
            f"train_batch must return a 'loss', got {sorted(metrics)}. Return the loss under the key 'loss'."
        )
    loss = metrics["loss"]
    if not isinstance(loss, torch.Tensor):
        remedy = (
            "Return the tensor itself, without item() or float()."
            if isinstance(loss, int | float)
            else ("Return the loss alone, or a dict with the key 'loss' and other metrics.")
        )
        raise InputError(f"the loss of train_batch must be a scalar tensor, got {type(loss).__name__}. {remedy}")
    return metrics


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook, None) is not getattr(Callback, hook)
