"""ElasticDL's elastic controller and its indices, on one process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from trek.compat.elasticdl.controller import DistributedOptimizer, create_elastic_controller
from trek.compat.elasticdl.data_shard_service import RecordIndexService
from trek.errors import InputError
from trek.world import World


def test_every_record_of_every_epoch_is_trained_by_equal_shares() -> None:
    worlds = [World(rank=rank, size=3) for rank in range(3)]
    services = [RecordIndexService(4, 2, 26, shuffle=True, world=world) for world in worlds]
    taken = [[service.fetch_record_index() for _ in range(len(service))] for service in services]
    assert {len(one) for one in taken} == {24}
    for epoch in range(2):
        counts = Counter(index for one in taken for index in one[12 * epoch : 12 * (epoch + 1)])
        assert set(counts) == set(range(26))
        assert max(counts.values()) <= 2
    with pytest.raises(StopIteration):
        services[0].fetch_record_index()


class Points(Dataset[Any]):
    """As the elastic data sets of ElasticDL's examples are written."""

    def __init__(self, service: RecordIndexService) -> None:
        self.service = service

    def __len__(self) -> int:
        return len(self.service)

    def __getitem__(self, index: int) -> Any:
        x = torch.tensor([self.service.fetch_record_index() / 32.0])
        return x, 3 * x + 1


def test_a_loop_for_one_process_is_trained() -> None:
    controller = create_elastic_controller(batch_size=8, dataset_size=32, num_epochs=40, shuffle=True)
    assert controller.data_shard_service is not None
    model = nn.Linear(1, 1)
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5))
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)

    def train_one_batch(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = controller.elastic_run(train_one_batch)
    with controller.scope():
        losses = [float(run(x, y).detach()) for x, y in DataLoader(Points(controller.data_shard_service), 8)]
    assert len(losses) == 160
    assert losses[-1] < 1e-3


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="dataset_size must be a whole number of at least 1, got 0"):
        RecordIndexService(4)
    with pytest.raises(InputError, match="not part of a controller"):
        DistributedOptimizer(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)).step()
