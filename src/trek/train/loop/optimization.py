"""Optimization: the models, optimizers and schedulers of a run, and the step that moves them.

The order of a step is fixed: gradients made global, unscaled, clipped, optimizer, gradients cleared, schedulers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from trek.errors import CheckpointError, InputError
from trek.strategies import Strategy
from trek.train.loop.ema import EMA
from trek.train.loop.optimizer_settings import apply_changes, made_with
from trek.train.loop.pace import Pace
from trek.train.loop.portions import Portion
from trek.train.loop.precision import Precision

StepUnit = Literal["step", "batch", "epoch", "manual"]


@dataclass(frozen=True)
class _Scheduled:
    scheduler: Any
    per: StepUnit
    every: int

    def advance(self, unit: StepUnit, count: int) -> None:
        """Step, if the `count`-th `unit` is one to step after."""
        if self.per == unit and count % self.every == 0:
            if hasattr(self.scheduler, "optimizer"):
                # torch warns of a scheduler that steps first; where the first step is held back (accumulation) or
                # skipped (an fp16 overflow) that is as it should be.
                self.scheduler.optimizer._opt_called = True
            self.scheduler.step()


class Optimization:
    """What is trained and how it moves."""

    def __init__(
        self,
        strategy: Strategy,
        precision: Precision,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        compiled: bool | str = False,
        ema_decay: float | None = None,
    ) -> None:
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.keeps_gradients = False
        """Clear gradients to zero in place: recorded steps that accumulate find them where they were."""
        self._num_steps: dict[int, int] = {}
        self._strategy = strategy
        self._precision = precision
        self._clip_norm = clip_norm
        self._clip_value = clip_value
        self._compiled = compiled
        self._ema_decay = ema_decay
        self._emas: list[tuple[nn.Module, EMA]] = []
        self._pace = Pace(strategy.world)
        self._scheduled: list[_Scheduled] = []
        self._parameters: dict[int, list[nn.Parameter]] = {}
        self._made_with: dict[int, list[dict[str, Any]]] = {}
        self._weight = 1.0
        self._ends_group = True
        self._is_holding = False

    def add_model(self, model: nn.Module) -> nn.Module:
        """Place and wrap `model`; use what comes back."""
        if not isinstance(model, nn.Module):
            raise InputError(f"a model must be a torch.nn.Module, got {type(model).__name__}.")
        if self._compiled:
            model.compile(**({"backend": self._compiled} if isinstance(self._compiled, str) else {}))
        wrapped = self._strategy.wrap_model(model)
        self.models.append(wrapped)
        if self._ema_decay is not None:
            self._emas.append((wrapped, EMA(self._strategy.unwrap_model(wrapped), decay=self._ema_decay)))
        return wrapped

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Let `step` move this optimizer."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(f"an optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}.")
        self.optimizers.append(optimizer)
        self._parameters[id(optimizer)] = [p for group in optimizer.param_groups for p in group["params"]]
        self._made_with[id(optimizer)] = made_with(optimizer)
        return optimizer

    def add_scheduler(self, scheduler: Any, *, per: StepUnit, every: int = 1) -> Any:
        """Step `scheduler` after every `every`-th optimizer step, batch or epoch; a manual one is only saved."""
        if per not in ("step", "batch", "epoch", "manual"):
            raise InputError(f"a scheduler steps per 'step', 'batch', 'epoch' or 'manual', got {per!r}.")
        self._scheduled.append(_Scheduled(scheduler, per, every))
        return scheduler

    def drop_schedulers(self) -> None:
        """Leave the learning rates to somebody else."""
        self._scheduled.clear()

    def begin(self, portion: Portion) -> None:
        """A batch comes: weigh its loss, and keep its gradients local if others of its group follow."""
        self._weight, self._ends_group = portion.weight, portion.is_last
        if portion.is_last == self._is_holding:
            self._is_holding = not portion.is_last
            for model in self.models:
                self._strategy.hold_gradients(model, held=self._is_holding)

    def backward(self, loss: torch.Tensor) -> None:
        """Backward through `loss`, a mean over this rank's samples."""
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise InputError(f"the loss must be a scalar tensor, got {got}. Take its mean over the batch.")
        if self._weight != 1.0:
            loss = loss * self._weight
        self._precision.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(
        self,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ) -> bool:
        """Step `optimizer` (the only one, if none is named) if this batch ends its group; whether it did."""
        if not self._ends_group:
            return False
        optimizer = optimizer or self._only_optimizer()
        self.move(optimizer, clip_norm=clip_norm, clip_value=clip_value)
        self.count_step(optimizer)
        return True

    def move(
        self, optimizer: torch.optim.Optimizer, *, clip_norm: float | None = None, clip_value: float | None = None
    ) -> None:
        """What of a step happens on the device."""
        parameters = self._parameters.get(id(optimizer))
        if parameters is None:
            raise InputError("step() was given an optimizer that was never added. Call add_optimizer first.")
        self._sync(parameters)
        norm, value = clip_norm or self._clip_norm, clip_value or self._clip_value
        if norm is not None or value is not None:
            self._clip(optimizer, parameters, norm, value)
        self._strategy.step(optimizer, self._precision.step)
        optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        if self._emas:
            self._update_averages({id(p) for p in parameters})

    def count_step(self, optimizer: torch.optim.Optimizer) -> None:
        """What of a step happens here: counting, and the schedulers of `optimizer`."""
        count = self._num_steps[id(optimizer)] = self._num_steps.get(id(optimizer), 0) + 1
        for scheduled in self._scheduled:
            if getattr(scheduled.scheduler, "optimizer", optimizer) is optimizer:
                scheduled.advance("step", count)

    @property
    def ends_group(self) -> bool:
        """Whether the optimizer steps after this batch."""
        return self._ends_group

    @property
    def part(self) -> tuple[bool, float]:
        """What this batch is in its step: whether it is the last of its group, and what its loss weighs."""
        return self._ends_group, self._weight

    def learning_rates(self) -> tuple[float, ...]:
        """Of every group of every optimizer."""
        return tuple(float(group["lr"]) for optimizer in self.optimizers for group in optimizer.param_groups)

    def end_batch(self, count: int) -> None:
        """The `count`-th batch is done."""
        if self._scheduled:
            self._advance("batch", count)

    def end_epoch(self, count: int) -> None:
        """The `count`-th epoch is done."""
        self._advance("epoch", count)

    def learning_rate(self) -> float | None:
        """The first optimizer's first learning rate."""
        return next(iter(self.learning_rates()), None)

    def swap_averages(self) -> None:
        """Exchange weights and their moving averages, where these are kept."""
        for _, ema in self._emas:
            ema.swap()

    def sync_buffers(self) -> None:
        """Every rank takes the leader's running statistics."""
        for model in self.models:
            self._strategy.sync_buffers(model)

    def model_states(self) -> list[dict[str, torch.Tensor]]:
        """The whole state of each model."""
        return [self._strategy.model_state(model) for model in self.models]

    def state_dict(self) -> dict[str, Any]:
        """What is the same on every rank, but for the models."""
        return {
            "optimizers": [self._strategy.optimizer_state(self._owner(o), o) for o in self.optimizers],
            "made_with": [self._made_with[id(o)] for o in self.optimizers],
            "schedulers": [s.scheduler.state_dict() for s in self._scheduled],
            "precision": self._precision.state_dict(),
            "emas": [ema.state_dict() for _, ema in self._emas],
            "num_steps": [self._num_steps.get(id(optimizer), 0) for optimizer in self.optimizers],
        }

    def load(self, models: list[dict[str, torch.Tensor]], state: Mapping[str, Any]) -> None:
        """Take `model_states` and `state_dict` back, into the same models and optimizers added in the same order.

        A setting that an optimizer was made with differently this time (another learning rate, say) takes effect.
        """
        _match("model", len(self.models), len(models))
        _match("optimizer", len(self.optimizers), len(state["optimizers"]))
        _match("scheduler", len(self._scheduled), len(state["schedulers"]))
        for model, weights in zip(self.models, models, strict=True):
            self._load_model(model, weights)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            self._strategy.load_optimizer_state(self._owner(optimizer), optimizer, saved)
        for scheduled, saved in zip(self._scheduled, state["schedulers"], strict=True):
            scheduled.scheduler.load_state_dict(saved)
        for optimizer, before in zip(self.optimizers, state["made_with"], strict=True):
            schedulers = [s.scheduler for s in self._scheduled if getattr(s.scheduler, "optimizer", None) is optimizer]
            apply_changes(optimizer, schedulers, before=before, now=self._made_with[id(optimizer)])
        self._precision.load_state_dict(dict(state["precision"]))
        _match("moving average", len(self._emas), len(state["emas"]))
        for (_, ema), saved in zip(self._emas, state["emas"], strict=True):
            ema.load_state_dict(saved)
        self._num_steps = {id(o): count for o, count in zip(self.optimizers, state["num_steps"], strict=True)}

    def gradients(self) -> dict[int, torch.Tensor]:
        """Gradients half way through a group, by the parameter's place; empty between steps."""
        if self.keeps_gradients and self._ends_group:
            return {}
        places = enumerate(p for model in self.models for p in model.parameters())
        return {place: p.grad for place, p in places if p.grad is not None}

    def load_gradients(self, gradients: Mapping[int, torch.Tensor]) -> None:
        """Take `gradients` back."""
        for place, parameter in enumerate(p for model in self.models for p in model.parameters()):
            if place in gradients:
                parameter.grad = gradients[place].to(parameter.device, parameter.dtype)

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
        self._precision.unscale(optimizer)
        if value is not None:
            nn.utils.clip_grad_value_(parameters, value)
        if norm is not None:
            self._strategy.clip_norm(parameters, norm)

    def _update_averages(self, moved: set[int]) -> None:
        """Of the models with parameters that moved: with two optimizers, each average follows its own."""
        for model, ema in self._emas:
            if any(id(p) in moved for p in model.parameters()):
                ema.update()

    def _advance(self, unit: StepUnit, count: int) -> None:
        for scheduled in self._scheduled:
            scheduled.advance(unit, count)

    def _only_optimizer(self) -> torch.optim.Optimizer:
        if len(self.optimizers) != 1:
            raise InputError(f"step() needs to know which of {len(self.optimizers)} optimizers: pass it.")
        return self.optimizers[0]

    def _owner(self, optimizer: torch.optim.Optimizer) -> nn.Module | None:
        """The model whose parameters `optimizer` moves, if one holds them all."""
        wanted = {id(p) for p in self._parameters[id(optimizer)]}
        return next((m for m in self.models if wanted <= {id(p) for p in m.parameters()}), None)

    def _load_model(self, model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
        try:
            self._strategy.load_model_state(model, weights)
        except RuntimeError as error:
            raise CheckpointError(f"the checkpoint does not fit the model: {error}") from error


def _match(what: str, have: int, saved: int) -> None:
    if have != saved:
        raise CheckpointError(
            f"the checkpoint holds {saved} {what}(s), this run has {have}. Resume with the code that wrote it."
        )
