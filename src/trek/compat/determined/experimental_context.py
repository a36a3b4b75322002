"""`context.experimental` of a PyTorchTrial, and the forward pass in automatic mixed precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import trek
from trek.errors import ConfigError


class PyTorchExperimentalContext:
    """Switches that Determined has beside its config."""

    def __init__(self, traveler: trek.Traveler) -> None:
        self._traveler = traveler

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accepted: any loader may be returned. One of torch is divided among the processes and resumed."""

    def disable_auto_to_device(self) -> None:
        """Accepted: batches are on the device already, and `context.to_device` leaves them there."""

    def use_amp(self) -> None:
        """Refused unless the run has mixed precision, which is a setting."""
        if self._traveler.settings.precision == "fp32":
            raise ConfigError("use_amp needs mixed precision. Set training.precision to fp16 or bf16.")


def in_mixed_precision(model: nn.Module, *, device: torch.device) -> nn.Module:
    """`model` itself; its forward pass runs in mixed precision from now on, and returns float32.

    Tensors in outputs of other types than dict, list and tuple stay as they are.
    """
    forward, dtype = model.forward, torch.float16 if device.type == "cuda" else torch.bfloat16

    def run(*args: Any, **named: Any) -> Any:
        with torch.autocast(device.type, dtype):
            return _as_float32(forward(*args, **named))

    model.forward = run
    return model


def _as_float32(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    if type(output) is dict:
        return {name: _as_float32(one) for name, one in output.items()}
    if type(output) in (list, tuple):
        return type(output)(map(_as_float32, output))
    return output
