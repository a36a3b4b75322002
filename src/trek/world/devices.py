"""Which device a process computes on. Moves nothing there; see `trek.strategies`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trek.errors import InputError

if TYPE_CHECKING:
    import torch

_KNOWN = "auto, cpu, cuda, cuda:<index> or mps"


def choose_device(name: str, *, local_rank: int) -> torch.device:
    """The device called `name`; "auto" is the GPU of the local rank where there is one, else the CPU.

    A process that sees fewer GPUs than its local rank has been given its own by the launcher, so ranks wrap around.
    """
    import torch

    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if name in {"auto", "cuda"}:
        return torch.device("cuda", local_rank % _num_gpus(name))
    if match := re.fullmatch(r"cuda:(\d+)", name):
        index, count = int(match[1]), _num_gpus(name)
        if index >= count:
            raise InputError(f"device {name!r} does not exist: this process sees {count} GPUs, counted from 0.")
        return torch.device("cuda", index)
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise InputError("device 'mps' is not available on this machine. Use 'auto' or 'cpu'.")
        return torch.device("mps")
    raise InputError(f"device {name!r} is not valid. Use {_KNOWN}.")


def _num_gpus(name: str) -> int:
    import torch

    if not torch.cuda.is_available():
        raise InputError(f"device {name!r} is not available: torch sees no GPU. Use 'auto' or 'cpu'.")
    return torch.cuda.device_count()
