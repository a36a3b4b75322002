"""DeviceRates: learning rates in tensors on the device, from which a recorded step reads them.

A CUDA graph repeats the numbers it was recorded with. With the rate in a tensor, a scheduler may change it every step:
the tensor is filled before each replay. Between steps, optimizers hold their rates as plain numbers, so schedulers and
checkpoints are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

_READS_TENSORS = (SGD, Adam, AdamW)
"""Optimizers whose fused step reads its rate from a tensor without waiting for the device."""
_NOT_BAKED = {"params", "lr", "initial_lr"}


class DeviceRates:
    """The rates of `optimizers`, for recorded and eager steps alike, so that both compute the same."""

    def __init__(self, optimizers: Sequence[Optimizer], *, device: torch.device) -> None:
        self._groups = [group for one in optimizers for group in one.param_groups]
        self.are_tensors = all(type(one) in _READS_TENSORS for one in optimizers)
        """Whether a rate may change without a new recording."""
        for optimizer in optimizers:
            _prepare(optimizer, is_fused=self.are_tensors)
        count = len(self._groups) if self.are_tensors else 0
        self._tensors = [torch.zeros((), device=device) for _ in range(count)]
        self._filled: list[float | None] = [None] * count

    def baked(self) -> list[Any]:
        """The settings that are baked into a recording; if they change, the step must be recorded again."""
        fixed = [value for group in self._groups for key, value in group.items() if key not in _NOT_BAKED]
        return fixed if self.are_tensors else [*fixed, *(float(group["lr"]) for group in self._groups)]

    def fill(self) -> None:
        """Copy the current rates to the device."""
        for index, tensor in enumerate(self._tensors):
            rate = self._groups[index]["lr"]
            if rate is not tensor and rate != self._filled[index]:
                tensor.fill_(rate)
                self._filled[index] = rate

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within the block, optimizers read their rates from the tensors."""
        rates = [group["lr"] for group in self._groups]
        for group, tensor in zip(self._groups, self._tensors, strict=False):
            group["lr"] = tensor
        try:
            yield
        finally:
            for group, rate in zip(self._groups, rates, strict=True):
                group["lr"] = rate


def _prepare(optimizer: Optimizer, *, is_fused: bool) -> None:
    """Keep the optimizer's step counts on the device; with `is_fused`, use the fused step, which reads tensor rates."""
    for group in optimizer.param_groups:
        if is_fused:
            group["fused"], group["foreach"] = True, False
        if "capturable" in group:
            group["capturable"] = True
        for parameter in group["params"]:
            step = optimizer.state.get(parameter, {}).get("step")
            if isinstance(step, torch.Tensor) and step.device != parameter.device:
                optimizer.state[parameter]["step"] = step.to(parameter.device, torch.float32)
