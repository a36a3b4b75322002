"""Optimization: the models, optimizers and schedulers of a run, and the optimizer step.

The order of a step is fixed: sync gradients, unscale, clip, step the optimizer, clear gradients, step the schedulers.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from trek.errors import CheckpointError, ConfigError, InputError
from trek.strategies import Strategy
from trek.strategies.base import GroupBroken
from trek.strategies.naming import parameter_names
from trek.train.loop.compiling import check_backend, compile_model
from trek.train.loop.ema import EMA
from trek.train.loop.optimizer_settings import (
    apply_changed_settings,
    check_numbers,
    plain_settings,
    restore_types,
)
from trek.train.loop.pace import Pace
from trek.train.loop.portions import Portion
from trek.train.loop.precision import Precision
from trek.train.loop.replicas import Facts, check_equal, model_facts, optimizer_facts, scheduler_facts
from trek.train.loop.worker_group import WorkerGroup

StepUnit = Literal["step", "batch", "epoch", "manual"]
ClipGrads = Callable[[Sequence[nn.Parameter]], Any]


@dataclass(frozen=True)
class _Scheduled:
    scheduler: Any
    per: StepUnit
    every: int

    def advance(self, unit: StepUnit, count: int) -> None:
        """Step, if the scheduler is due after the `count`-th `unit`; those of metrics step after validations."""
        if self.per == unit and count % self.every == 0 and not isinstance(self.scheduler, ReduceLROnPlateau):
            if hasattr(self.scheduler, "optimizer"):
                # torch warns if a scheduler steps before its optimizer. With accumulation, or after an fp16 overflow,
                # that is correct.
                self.scheduler.optimizer._opt_called = True
            self.scheduler.step()


class Optimization:
    """The models of a run and their optimization."""

    def __init__(
        self,
        strategy: Strategy,
        precision: Precision,
        *,
        group: WorkerGroup | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        compiled: bool | str = False,
        ema_decay: float | None = None,
    ) -> None:
        if isinstance(compiled, str):
            check_backend(compiled)
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.counts_own_steps = True
        """Whether a step here counts as one of the run; otherwise `follow` says how far the run is."""
        self.keeps_gradients = False
        """Zero gradients in place, because recorded steps that accumulate need them at the same address."""
        self.before_step: ClipGrads | None = None
        """Called with the parameters of an optimizer before each of its steps, after all other ways of clipping."""
        self._num_steps: dict[int, int] = {}
        self._strategy = strategy
        self._group = group or WorkerGroup()
        self.precision = precision
        self._clip_norm = clip_norm
        self._clip_value = clip_value
        self._compiled = compiled
        self._ema_decay = ema_decay
        self._emas: list[tuple[nn.Module, EMA]] = []
        self._buffer_syncs: list[Callable[[], None]] = []
        self._facts: Facts = {}
        """What was added, as ranks compare it."""
        self._pace = Pace(strategy.world, gather=strategy.gather)
        self._scheduled: list[_Scheduled] = []
        self._parameters: dict[int, list[nn.Parameter]] = {}
        self._initial_settings: dict[int, list[dict[str, Any]]] = {}
        self._weight = 1.0
        self._ends_group = True
        self._is_sync_deferred = False
        self.is_training = True
        """Whether the models were last switched to training mode."""

    def add_model(self, model: nn.Module) -> nn.Module:
        """Place and wrap `model`; use the returned module."""
        if not isinstance(model, nn.Module):
            raise InputError(f"a model must be a torch.nn.Module, got {type(model).__name__}.")
        if self._compiled:
            compile_model(model, backend=self._compiled if isinstance(self._compiled, str) else None)
        self._note_facts("model", len(self.models), model_facts(model))
        wrapped = self._strategy.wrap_model(model)
        if self._strategy.tables is not None and self.precision.name == "fp16":
            raise ConfigError(
                "precision 'fp16' does not scale the gradients of trek.nn.Embedding. Use 'bf16' or 'fp32'."
            )
        self.models.append(wrapped)
        if (sync := self._strategy.buffer_sync(wrapped)) is not None:
            self._buffer_syncs.append(sync)
        if self._ema_decay is not None:
            self._emas.append((wrapped, EMA(self._strategy.unwrap_model(wrapped), decay=self._ema_decay)))
        return wrapped

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Register an optimizer for `step`."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(f"an optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}.")
        _check_step(optimizer)
        check_numbers(optimizer)
        self._note_facts("optimizer", len(self.optimizers), optimizer_facts(optimizer, self.models))
        self.optimizers.append(optimizer)
        self._parameters[id(optimizer)] = [p for group in optimizer.param_groups for p in group["params"]]
        self._initial_settings[id(optimizer)] = plain_settings(optimizer)
        return optimizer

    def add_scheduler(self, scheduler: Any, *, per: StepUnit, every: int = 1) -> Any:
        """Step `scheduler` after every `every`-th optimizer step, batch or epoch; with "manual", it is only saved."""
        if per not in ("step", "batch", "epoch", "manual"):
            raise InputError(f"a scheduler must step per 'step', 'batch', 'epoch' or 'manual', got {per!r}.")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InputError(f"a scheduler must step every 1 or more of its units, got {every!r}.")
        if not callable(getattr(scheduler, "step", None)) or not callable(getattr(scheduler, "state_dict", None)):
            raise InputError(f"a scheduler must have step() and state_dict(), got {type(scheduler).__name__}.")
        if isinstance(scheduler, ReduceLROnPlateau) and per in ("step", "batch"):
            raise InputError(
                f"a ReduceLROnPlateau is stepped with the metric of each validation, so it cannot step per {per!r}. "
                "Use 'epoch', or 'manual' to step it yourself."
            )
        self._note_facts("scheduler", len(self._scheduled), scheduler_facts(scheduler, per=per, every=every))
        self._scheduled.append(_Scheduled(scheduler, per, every))
        return scheduler

    def check_replicas(self) -> None:
        """Raise `InputError` unless all ranks of the present group have added the same; called on all together."""
        check_equal(self._strategy, self._facts)

    def _note_facts(self, what: str, index: int, facts: Facts) -> None:
        name = f"the {what}" if index == 0 else f"{what} {index + 1}"
        self._facts |= {f"{fact} of {name}": value for fact, value in facts.items()}
        self.check_replicas()

    def set_mode(self, *, is_training: bool) -> None:
        """Switch all models to training or evaluation mode."""
        self.is_training = is_training
        for model in self.models:
            model.train(is_training)

    def drop_schedulers(self) -> None:
        """Remove all schedulers; the caller sets the learning rates."""
        self._scheduled.clear()

    def begin(self, portion: Portion) -> None:
        """Prepare for a batch: set the weight of its loss, and defer gradient sync unless it ends its group."""
        self._weight, self._ends_group = portion.weight, portion.is_last
        if portion.is_last == self._is_sync_deferred:
            self._is_sync_deferred = not portion.is_last
            for model in self.models:
                self._strategy.hold_gradients(model, held=self._is_sync_deferred)

    def release_gradients(self) -> None:
        """Defer gradient sync no more."""
        if self._is_sync_deferred:
            self._is_sync_deferred = False
            for model in self.models:
                self._strategy.hold_gradients(model, held=False)

    def follow_restored(self) -> None:
        """The models were put back in place."""
        for model in self.models:
            self._strategy.follow_restored(model)

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        """Backward pass from `loss`, a mean over this rank's samples."""
        if not isinstance(loss, torch.Tensor):
            raise InputError(f"the loss must be a scalar tensor, got {type(loss).__name__}. Pass the tensor itself.")
        if loss.dim() != 0:
            shape = f"a tensor of shape {tuple(loss.shape)}"
            raise InputError(f"the loss must be a scalar tensor, got {shape}. Take its mean over the batch.")
        if not loss.requires_grad:
            raise InputError(
                "the loss depends on no parameter that is trained. Compute it from the model's output, without "
                "detach(), item() or torch.no_grad()."
            )
        if self._weight != 1.0:
            loss = loss * self._weight
        try:
            self.precision.scale(loss).backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        except Exception as error:
            if not self._strategy.has_lost_peer(error):
                raise
            self._group.interrupt()

    def step(
        self,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        clip_grads: ClipGrads | None = None,
        clears_gradients: bool = True,
    ) -> bool:
        """Step `optimizer` (by default the only one) if this batch ends its group; returns whether it stepped.

        `clip_grads` clips the gradients of the parameters it is given, after the other ways of clipping.
        """
        if clip_norm is not None or clip_value is not None:
            _check_amounts(clip_norm=clip_norm, clip_value=clip_value)
        if not self._ends_group or self._group.is_interrupted:
            return False
        optimizer = optimizer or self._only_optimizer()
        if self._group.has_done("step"):
            optimizer.zero_grad(set_to_none=not self.keeps_gradients)
            return True
        try:
            self.apply_gradients(
                optimizer,
                clip_norm=clip_norm,
                clip_value=clip_value,
                clip_grads=clip_grads,
                clears_gradients=clears_gradients,
            )
        except GroupBroken:
            self._group.interrupt()
            return False
        if self.counts_own_steps:
            self.count_step(optimizer)
        self._group.note_done("step")
        return True

    def apply_gradients(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        clip_grads: ClipGrads | None = None,
        clears_gradients: bool = True,
    ) -> None:
        """The part of a step that runs on the device."""
        parameters = self._parameters.get(id(optimizer))
        if parameters is None:
            raise InputError("step() got an optimizer that was not added. Call add_optimizer first.")
        self._sync(parameters)
        norm, value = clip_norm or self._clip_norm, clip_value or self._clip_value
        if norm is not None or value is not None:
            self._clip(optimizer, parameters, norm, value)
        for change in (clip_grads, self.before_step):
            if change is not None:
                self.precision.unscale(optimizer)
                change(parameters)
        self._strategy.step(optimizer, self.precision.step)
        if clears_gradients:
            optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        if self._emas:
            self._update_averages({id(p) for p in parameters})

    def count_step(self, optimizer: torch.optim.Optimizer) -> None:
        """The part of a step that runs on the host: counting it, and stepping the schedulers of `optimizer`."""
        count = self._num_steps[id(optimizer)] = self._num_steps.get(id(optimizer), 0) + 1
        for scheduled in self._scheduled:
            if getattr(scheduled.scheduler, "optimizer", optimizer) is optimizer:
                scheduled.advance("step", count)

    @property
    def num_steps(self) -> int:
        """Steps of the run so far, of the optimizer that has the most."""
        return max(self._num_steps.values(), default=0)

    def follow(self, *, steps: int, batches: range) -> None:
        """Step schedulers as the run does that others take part in: up to `steps`, and after each of `batches`."""
        for optimizer in self.optimizers:
            while self._num_steps.get(id(optimizer), 0) < steps:
                self.count_step(optimizer)
        for count in batches if self._scheduled else ():
            self._advance("batch", count)

    @property
    def ends_group(self) -> bool:
        """Whether the optimizer steps after this batch."""
        return self._ends_group

    @property
    def part(self) -> tuple[bool, float]:
        """The role of this batch in its step: whether it is the last of its group, and the weight of its loss."""
        return self._ends_group, self._weight

    def drop_gradients(self) -> None:
        """Forget what was accumulated, of all models."""
        for model in self.models:
            model.zero_grad(set_to_none=not self.keeps_gradients)
        self._strategy.drop_rows()

    def learning_rates(self) -> tuple[float, ...]:
        """The learning rate of every group of every optimizer."""
        return tuple(float(group["lr"]) for optimizer in self.optimizers for group in optimizer.param_groups)

    def end_batch(self, count: int) -> None:
        """Keep buffers equal on all ranks, and step the schedulers that are due after the `count`-th batch."""
        for sync in self._buffer_syncs:
            sync()
        if self._scheduled and not self._group.has_done("schedulers"):  # else it is read again in its group of batches
            self._advance("batch", count)
            self._group.note_done("schedulers")

    def end_epoch(self, count: int) -> None:
        """Step the schedulers that are due after the `count`-th epoch."""
        self._advance("epoch", count)

    def end_validation(self, metric: float) -> None:
        """Step the schedulers that follow the metric of validations."""
        for scheduled in self._scheduled:
            if isinstance(scheduled.scheduler, ReduceLROnPlateau) and scheduled.per != "manual":
                scheduled.scheduler.step(metric)

    def learning_rate(self) -> float | None:
        """The learning rate of the first group of the first optimizer; None without an optimizer."""
        return next(iter(self.learning_rates()), None)

    def swap_averages(self) -> None:
        """Swap the weights with their moving averages, if there are any."""
        for _, ema in self._emas:
            ema.swap()

    def sync_buffers(self) -> None:
        """Copy the leader's buffers (running statistics) to every rank."""
        for model in self.models:
            self._strategy.sync_buffers(model)

    def model_states(self) -> list[dict[str, torch.Tensor]]:
        """The full state of each model."""
        return [self._strategy.model_state(model) for model in self.models]

    def state_dict(self) -> dict[str, Any]:
        """The state that is the same on every rank, without the models."""
        return {
            "optimizers": [self._strategy.optimizer_state(self._owner(o), o) for o in self.optimizers],
            "made_with": [self._initial_settings[id(o)] for o in self.optimizers],
            "optimizer_kinds": [type(o).__name__ for o in self.optimizers],
            "scheduler_kinds": [type(s.scheduler).__name__ for s in self._scheduled],
            "schedulers": [s.scheduler.state_dict() for s in self._scheduled],
            "precision": self.precision.state_dict(),
            "emas": [ema.state_dict() for _, ema in self._emas],
            "num_steps": [self._num_steps.get(id(optimizer), 0) for optimizer in self.optimizers],
            "gradients": self._strategy.averaged_gradients(self._all_parameters()),
        }

    def own_state(self) -> dict[str, Any]:
        """The state of optimizers and schedulers as this rank has it."""
        return {
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduled.scheduler.state_dict() for scheduled in self._scheduled],
        }

    def load(self, models: list[dict[str, torch.Tensor]], state: Mapping[str, Any]) -> None:
        """Restore `model_states` and `state_dict` into the same models and optimizers, added in the same order.

        Settings that the user changed in the optimizer's constructor, such as the learning rate, take effect.
        """
        _match("model", len(self.models), len(models))
        _match("optimizer", len(self.optimizers), len(state["optimizers"]))
        _match("scheduler", len(self._scheduled), len(state["schedulers"]))
        _check_kinds("optimizer", self.optimizers, state.get("optimizer_kinds"))
        _check_kinds("scheduler", [s.scheduler for s in self._scheduled], state.get("scheduler_kinds"))
        for model, weights in zip(self.models, models, strict=True):
            self._load_model(model, weights)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            self._load_optimizer(optimizer, saved, models)
        for scheduled, saved in zip(self._scheduled, state["schedulers"], strict=True):
            scheduled.scheduler.load_state_dict(saved)
        for optimizer, before in zip(self.optimizers, state["made_with"], strict=True):
            schedulers = [s.scheduler for s in self._scheduled if getattr(s.scheduler, "optimizer", None) is optimizer]
            apply_changed_settings(optimizer, schedulers, old=before, new=self._initial_settings[id(optimizer)])
        self.precision.load_state_dict(dict(state["precision"]))
        _match("moving average", len(self._emas), len(state["emas"]))
        for (_, ema), saved in zip(self._emas, state["emas"], strict=True):
            ema.load_state_dict(saved)
        self._num_steps = {id(o): count for o, count in zip(self.optimizers, state["num_steps"], strict=True)}

    def gradients(self) -> dict[str, Any]:
        """Partly accumulated gradients, by the index of the parameter, and those of rows; empty between steps."""
        if self.keeps_gradients and self._ends_group:
            return {}
        parameters = self._all_parameters()
        held, rows = self._strategy.held_gradients(parameters), self._strategy.held_rows(parameters)
        return {"dense": held, "rows": rows} if held or rows else {}

    def load_gradients(self, held: Sequence[Mapping[str, Any]], state: Mapping[str, Any]) -> None:
        """Restore the `gradients` of all ranks, and those in `state_dict`."""
        averaged, parameters = state.get("gradients", {}), self._all_parameters()
        # Checkpoints of older versions have no rows, and gradients by index alone.
        dense: list[Any] = [one.get("dense", {}) if "rows" in one else one for one in held]
        self._strategy.load_gradients(parameters, held=dense, averaged=averaged)
        self._strategy.load_rows(parameters, [one.get("rows", {}) for one in held])

    def _all_parameters(self) -> list[nn.Parameter]:
        return [p for model in self.models for p in model.parameters()]

    def _sync(self, parameters: list[nn.Parameter]) -> None:
        if not self._pace.is_measuring:
            self._strategy.sync_gradients(parameters)
            return
        started = time.perf_counter()
        self._strategy.sync_gradients(parameters)
        self._pace.add_sync(time.perf_counter() - started)

    def _clip(
        self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], norm: float | None, value: float | None
    ) -> None:
        self.precision.unscale(optimizer)
        if value is not None:
            nn.utils.clip_grad_value_(parameters, value)
        if norm is not None:
            self._strategy.clip_norm(parameters, norm)

    def _update_averages(self, changed: set[int]) -> None:
        """Update the averages of the models whose parameters the optimizer changed."""
        for model, ema in self._emas:
            if any(id(p) in changed for p in model.parameters()):
                ema.update()

    def _advance(self, unit: StepUnit, count: int) -> None:
        for scheduled in self._scheduled:
            scheduled.advance(unit, count)

    def _only_optimizer(self) -> torch.optim.Optimizer:
        if len(self.optimizers) != 1:
            raise InputError(f"step() needs an optimizer, because this run has {len(self.optimizers)}. Pass it.")
        return self.optimizers[0]

    def _owner(self, optimizer: torch.optim.Optimizer) -> nn.Module | None:
        """The model that has all parameters of `optimizer`, if there is one."""
        wanted = {id(p) for p in self._parameters[id(optimizer)]}
        return next((m for m in self.models if wanted <= {id(p) for p in m.parameters()}), None)

    def _load_optimizer(
        self, optimizer: torch.optim.Optimizer, saved: dict[str, Any], models: Sequence[Mapping[str, torch.Tensor]]
    ) -> None:
        owner = self._owner(optimizer)
        try:
            self._strategy.load_optimizer_state(owner, optimizer, saved)
        except (ValueError, LookupError) as error:
            raise CheckpointError(
                f"the checkpoint does not match the optimizer {type(optimizer).__name__}: {error} Resume with the "
                "parameter groups of the run that wrote it."
            ) from error
        if all(map(self._has_types, self.models, models)):
            keys = range(len(self._parameters[id(optimizer)]))
            names = parameter_names(self._strategy.unwrap_model(owner), optimizer) if owner is not None else keys
            restore_types(optimizer, saved["state"], names)

    def _has_types(self, model: nn.Module, weights: Mapping[str, torch.Tensor]) -> bool:
        """Whether the parameters of a model have the types of the saved weights."""
        named = self._strategy.unwrap_model(model).named_parameters()
        return all(name not in weights or weights[name].dtype == p.dtype for name, p in named)

    def _load_model(self, model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
        try:
            self._strategy.load_model_state(model, weights)
        except RuntimeError as error:
            raise CheckpointError(f"the checkpoint does not match the model: {error}") from error


def _check_amounts(**amounts: float | None) -> None:
    for name, amount in amounts.items():
        if amount is not None and not (isinstance(amount, int | float) and amount > 0):
            raise InputError(f"{name} must be a number greater than 0, got {amount!r}. Leave it out to clip nothing.")


def _check_step(optimizer: torch.optim.Optimizer) -> None:
    """Raise `InputError` for an optimizer whose step computes the loss anew, as LBFGS does."""
    required = [
        name
        for name, parameter in inspect.signature(optimizer.step).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if required:
        raise InputError(
            f"{type(optimizer).__name__} is not supported: its step() needs a {required[0]}, and a step here is taken "
            "from gradients that are computed already. Use an optimizer such as SGD or AdamW."
        )


def _check_kinds(what: str, have: Sequence[Any], saved: Sequence[str] | None) -> None:
    for one, kind in zip(have, saved or (), strict=False):
        if type(one).__name__ != kind:
            raise CheckpointError(
                f"the checkpoint was trained with the {what} {kind}, but this run has {type(one).__name__}. "
                f"Resume with {kind}, or start a new run from the checkpoint's weights."
            )


def _match(what: str, have: int, saved: int) -> None:
    if have != saved:
        raise CheckpointError(
            f"the checkpoint has {saved} {what}(s), but this run has {have}. Resume with the code that wrote it."
        )
