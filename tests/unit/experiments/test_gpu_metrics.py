"""GpuMeter with a fake of NVML: which GPU is a process's own, and what becomes of errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trek.experiments.gpu_metrics import GpuMeter, own_gpu


class FakeNvml:
    """A machine with `count` GPUs; GPU k works k percent of the time and holds k bytes."""

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, count: int, *, has_driver: bool = True) -> None:
        self._count = count
        self._has_driver = has_driver
        self.num_inits = 0

    def nvmlInit(self) -> None:
        self.num_inits += 1
        if not self._has_driver:
            raise self.NVMLError("no driver")

    def nvmlDeviceGetCount(self) -> int:
        return self._count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self._count:
            raise self.NVMLError("invalid argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=handle)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=handle)


@pytest.mark.parametrize(
    ("visible", "local_rank", "expected"),
    [(None, 2, 2), ("3", 0, 3), ("3", 1, 3), ("5,6", 1, 6), ("GPU-4", 0, 4), (" 1 , 2 ", 1, 2)],
)
def test_the_figures_are_of_the_gpu_that_the_rank_trains_on(
    visible: str | None, local_rank: int, expected: int
) -> None:
    meter = GpuMeter(FakeNvml(8), visible=visible, local_rank=local_rank)
    assert meter() == {"gpu_percent": expected, "gpu_memory_bytes": expected}


def test_the_library_is_opened_once() -> None:
    nvml = FakeNvml(1)
    meter = GpuMeter(nvml, visible=None, local_rank=0)
    assert meter() == meter()
    assert nvml.num_inits == 1


@pytest.mark.parametrize(
    "meter",
    [
        GpuMeter(None, visible=None, local_rank=0),
        GpuMeter(FakeNvml(0), visible=None, local_rank=0),
        GpuMeter(FakeNvml(2), visible="", local_rank=0),
        GpuMeter(FakeNvml(2), visible="7", local_rank=0),
        GpuMeter(FakeNvml(2, has_driver=False), visible=None, local_rank=0),
    ],
    ids=["no package", "no GPU", "none visible", "unknown", "no driver"],
)
def test_without_a_gpu_there_are_no_figures(meter: GpuMeter) -> None:
    assert meter() == {}


def test_ranks_wrap_around_the_visible_gpus() -> None:
    assert [own_gpu(["0", "1"], local_rank=rank) for rank in range(3)] == ["0", "1", "0"]
    assert own_gpu([], local_rank=0) is None
