"""LRScheduler: a learning-rate scheduler together with when it is stepped."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

from trek.errors import InputError


class _StepMode(StrEnum):
    """When a scheduler is stepped; each mode is equal to the unit that `add_scheduler` takes."""

    STEP_EVERY_EPOCH = "epoch"
    STEP_EVERY_BATCH = "batch"
    STEP_EVERY_OPTIMIZER_STEP = "step"
    MANUAL_STEP = "manual"


class LRScheduler:
    """A torch scheduler and its StepMode: what `create_lr_scheduler` returns, or `wrap_lr_scheduler` is given."""

    StepMode: TypeAlias = _StepMode

    def __init__(self, scheduler: Any, step_mode: _StepMode | str, frequency: int = 1) -> None:
        if step_mode not in list(_StepMode):
            modes = ", ".join(f"LRScheduler.StepMode.{mode.name}" for mode in _StepMode)
            raise InputError(f"step_mode must be one of {modes}, got {step_mode!r}.")
        self.scheduler = scheduler
        self.step_mode = _StepMode(step_mode)
        self.frequency = frequency
