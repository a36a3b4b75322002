"""GpuMeter: what the process's GPU does, read through NVML where its Python package (nvidia-ml-py) is installed.

NVML counts all GPUs of the machine, whatever a process may see; CUDA_VISIBLE_DEVICES says which of them are its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any


class GpuMeter:
    """The GPU of one rank. Call it for the figures of the moment; none where there is no GPU, driver or package."""

    def __init__(self, nvml: Any | None, *, visible: str | None, local_rank: int) -> None:
        """`nvml` is the module pynvml, or one like it; None without it. `visible` as in CUDA_VISIBLE_DEVICES."""
        self._nvml = nvml
        self._visible = None if visible is None else [one.strip() for one in visible.split(",") if one.strip()]
        self._local_rank = local_rank
        self._handle: Any = None

    def __call__(self) -> Mapping[str, float]:
        """The share of the last moments in which the GPU worked, and its memory in use."""
        nvml = self._nvml
        if nvml is None:
            return {}
        with contextlib.suppress(nvml.NVMLError):
            handle = self._opened(nvml)
            if handle is not None:
                used, rates = nvml.nvmlDeviceGetMemoryInfo(handle).used, nvml.nvmlDeviceGetUtilizationRates(handle)
                return {"gpu_percent": float(rates.gpu), "gpu_memory_bytes": float(used)}
        return {}

    def _opened(self, nvml: Any) -> Any:
        """Opened once: to load the driver's library takes a while."""
        if self._handle is None:
            nvml.nvmlInit()
            names = [str(at) for at in range(nvml.nvmlDeviceGetCount())] if self._visible is None else self._visible
            name = own_gpu(names, local_rank=self._local_rank)
            if name is not None:
                by_uuid = nvml.nvmlDeviceGetHandleByUUID
                self._handle = nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else by_uuid(name)
        return self._handle


def own_gpu(names: Sequence[str], *, local_rank: int) -> str | None:
    """Which of the visible GPUs a rank trains on, by index or UUID; see `trek.world.devices`. Pure."""
    return names[local_rank % len(names)] if names else None


def find_nvml() -> Any | None:
    """The module pynvml, if it is installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
