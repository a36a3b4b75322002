"""Choosing a device by name and local rank."""

from __future__ import annotations

import pytest
import torch

from trek.errors import InputError
from trek.world import choose_device


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    assert choose_device("auto", local_rank=1) == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
def test_auto_is_the_gpu_of_the_local_rank() -> None:
    assert choose_device("auto", local_rank=1) == torch.device("cuda", 1)


@pytest.mark.usefixtures("two_gpus")
def test_ranks_wrap_around_the_gpus_they_see() -> None:
    assert choose_device("cuda", local_rank=3) == torch.device("cuda", 1)


@pytest.mark.usefixtures("two_gpus")
def test_the_cpu_can_be_asked_for_beside_gpus() -> None:
    assert choose_device("cpu", local_rank=0) == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="sees 2 GPUs"):
        choose_device("cuda:2", local_rank=0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "tpu"])
def test_a_device_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        choose_device(name, local_rank=0)
