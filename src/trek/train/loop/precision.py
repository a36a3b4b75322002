"""Precision: the number format of the forward pass, and the loss scaling that fp16 needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trek.errors import ConfigError, InputError

_NO_CONTEXT = nullcontext()


class Precision:
    """fp32, and the base of the others: no casts, no scaling."""

    name = "fp32"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def autocast(self) -> AbstractContextManager[Any]:
        """A context for the forward pass and the loss."""
        return _NO_CONTEXT

    def no_autocast(self) -> AbstractContextManager[Any]:
        """A context for backward passes and steps inside of `autocast`, which they must not be affected by."""
        return _NO_CONTEXT

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call backward on."""
        return loss

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling of the gradients, before clipping."""

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer."""
        optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint holds."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""


class _Autocast(Precision):
    """The forward pass in the 16-bit format `dtype`, where that is safe."""

    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[Any]:
        """`dtype` where it is safe."""
        return torch.autocast(self._device.type, dtype=self.dtype)

    def no_autocast(self) -> AbstractContextManager[Any]:
        """fp32 again."""
        return torch.autocast(self._device.type, dtype=self.dtype, enabled=False)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer; inside of `autocast`, the next forward pass must cast the new weights."""
        super().step(optimizer)
        torch.clear_autocast_cache()


class BF16(_Autocast):
    """bfloat16 autocast; it has the range of fp32, so no scaling is needed."""

    name = "bf16"
    dtype = torch.bfloat16


class FP16(_Autocast):
    """float16 autocast with a gradient scaler. The scale is updated once per batch, however many optimizers step."""

    name = "fp16"
    dtype = torch.float16

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._scaler = torch.amp.GradScaler(device.type)
        self._unscaled: set[int] = set()
        self._has_stepped = False

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the current scale."""
        self._update()
        scaled: torch.Tensor = self._scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide this optimizer's gradients by the scale, once per step."""
        if id(optimizer) not in self._unscaled:
            self._scaler.unscale_(optimizer)
            self._unscaled.add(id(optimizer))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step, unless a gradient overflowed."""
        self._scaler.step(optimizer)
        torch.clear_autocast_cache()
        self._unscaled.discard(id(optimizer))
        self._has_stepped = True

    def state_dict(self) -> dict[str, Any]:
        """The scale and its growth state."""
        self._update()
        return dict(self._scaler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the scale."""
        self._scaler.load_state_dict(state)

    def _update(self) -> None:
        # Deferred to the next loss: with two optimizers, the scale must not change between their steps.
        if self._has_stepped:
            self._scaler.update()
            self._has_stepped = False


class OwnScaler(Precision):
    """A gradient scaler of the loop's own, which scales its losses and updates the scale itself."""

    name = "own scaler"

    def __init__(self, device: torch.device, scaler: torch.amp.GradScaler, *, instead_of: Precision) -> None:
        super().__init__(device)
        if not isinstance(scaler, torch.amp.GradScaler):
            raise InputError(f"a scaler must be a torch.amp.GradScaler, got {type(scaler).__name__}.")
        if instead_of.name != "fp32":
            raise ConfigError(
                f"precision {instead_of.name!r} has a scaler or needs none. Remove your own, or set precision to fp32."
            )
        self._scaler = scaler
        self._unscaled: set[int] = set()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide this optimizer's gradients by the scale, once per step."""
        if id(optimizer) not in self._unscaled:
            self._scaler.unscale_(optimizer)
            self._unscaled.add(id(optimizer))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step, unless a gradient overflowed."""
        self._scaler.step(optimizer)
        self._unscaled.discard(id(optimizer))

    def state_dict(self) -> dict[str, Any]:
        """The scale and its growth state."""
        return dict(self._scaler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the scale."""
        self._scaler.load_state_dict(state)


_PRECISIONS: dict[str, type[Precision]] = {p.name: p for p in (Precision, BF16, FP16)}


def open_precision(name: str, device: torch.device) -> Precision:
    """The Precision called `name`, on `device`."""
    if name not in _PRECISIONS:
        raise ConfigError(f"precision {name!r} does not exist. Use one of: {', '.join(_PRECISIONS)}.")
    return _PRECISIONS[name](device)
