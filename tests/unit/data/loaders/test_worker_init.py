"""Worker processes of a loader begin as torch documents it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

import trek
from trek.data.loaders import as_loader


class Files(Dataset[Any]):
    """Has a handle only where `open_files` has opened one."""

    handle = -1

    def __len__(self) -> int:
        return 12

    def __getitem__(self, row: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return torch.tensor([row, self.handle, info.id])


def open_files(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.handle = worker_id


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("kind", [DataLoader, trek.DataLoader])
def test_worker_init_finds_the_users_dataset(kind: Any, context: str) -> None:
    """`get_worker_info().dataset` used to be a wrapper of ours, so what worker_init_fn set on it was lost."""
    loading = kind(Files(), 4, num_workers=2, worker_init_fn=open_files, multiprocessing_context=context)
    loader = as_loader(loading, world=trek.World(device_name="cpu"), seed=0)
    rows = torch.cat([batch.data for batch in loader.batches(0)])
    assert rows[:, 0].tolist() == list(range(12))
    assert torch.equal(rows[:, 1], rows[:, 2])
