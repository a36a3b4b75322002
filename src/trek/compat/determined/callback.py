"""`PyTorchCallback`: `trek.Callback`, with the hooks of older versions under the names they had there."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trek
from trek.errors import InputError

_NEWER = {
    "on_checkpoint_end": "on_checkpoint_write_end",
    "on_validation_step_start": "on_validation_start",
    "on_validation_step_end": "on_validation_end",
}
"""The names that hooks have now."""
_GONE = {
    "on_train_step_start": "on_training_start or on_training_epoch_start",
    "on_train_step_end": "on_training_workload_end, which comes with every report",
}
"""Hooks around steps of several batches, which do not exist here."""


class PyTorchCallback(trek.Callback):
    """`trek.Callback`, with the older names of its hooks. Hooks of other names, which nothing calls, are refused."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name in dir(cls):
            if name.startswith("on_") and not hasattr(PyTorchCallback, name) and callable(getattr(cls, name)):
                remedy = f"Use {_GONE[name]}." if name in _GONE else "Remove it, or give it another name."
                raise InputError(f"{cls.__name__}.{name} is not a hook of PyTorchCallback. {remedy}")
        for older, newer in _NEWER.items():
            if _is_overridden(cls, older) and _is_overridden(cls, newer):
                raise InputError(f"{cls.__name__} has {newer} under its older name {older} too. Keep one of them.")
        if _takes_self_alone(cls.on_training_epoch_start):
            warnings.warn(
                f"{cls.__name__}.on_training_epoch_start() without epoch_idx is deprecated. Add this parameter.",
                FutureWarning,
                stacklevel=2,
            )
            cls.on_training_epoch_start = _called_without_epoch(cls.on_training_epoch_start)  # type: ignore[method-assign]

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """A checkpoint has been written; the older name of `on_checkpoint_write_end`."""

    def on_validation_step_start(self) -> None:
        """A validation begins; the older name of `on_validation_start`."""

    def on_validation_step_end(self, metrics: dict[str, Any]) -> None:
        """A validation has ended; the older name of `on_validation_end`, called on the leader alone."""

    def on_checkpoint_write_end(self, checkpoint_dir: Path | str) -> None:
        """A checkpoint has been written."""
        self.on_checkpoint_end(str(checkpoint_dir))

    def on_validation_start(self) -> None:
        """A validation begins."""
        self.on_validation_step_start()

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        """A validation has ended."""
        if trek.World.from_env().is_leader:
            self.on_validation_step_end(metrics)


def _is_overridden(cls: type, hook: str) -> bool:
    return getattr(cls, hook) is not getattr(PyTorchCallback, hook)


def _takes_self_alone(hook: Callable[..., Any]) -> bool:
    return len(inspect.signature(hook).parameters) == 1


def _called_without_epoch(hook: Callable[..., None]) -> Callable[..., None]:
    def on_training_epoch_start(self: PyTorchCallback, epoch_idx: int = 0) -> None:
        hook(self)

    return on_training_epoch_start
