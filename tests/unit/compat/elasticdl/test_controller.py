"""ElasticDL's elastic controller and its indices, on one process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
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


@given(size=st.integers(1, 40), batch_size=st.integers(1, 9), num_workers=st.integers(1, 4), shuffle=st.booleans())
def test_shards_are_the_same_records_as_the_indices(
    size: int, batch_size: int, num_workers: int, shuffle: bool
) -> None:
    seen: set[int] = set()
    for rank in range(num_workers):
        world = World(rank=rank, size=num_workers)
        one_by_one, by_shard = (RecordIndexService(batch_size, 2, size, shuffle, world=world) for _ in range(2))
        expected = [one_by_one.fetch_record_index() for _ in range(len(one_by_one))]
        shards = list(iter(by_shard.fetch_shard, None))
        assert all(0 < (len(one.indices) or one.end - one.start) <= batch_size for one in shards)
        assert [index for one in shards for index in one.indices or range(one.start, one.end)] == expected
        assert by_shard.report_batch_done()
        seen.update(expected)
    assert seen == set(range(size))


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


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_is_of_its_own_class_and_takes_a_scheduler(kind: type[torch.optim.Optimizer]) -> None:
    controller = create_elastic_controller(batch_size=8, dataset_size=32, num_epochs=4)
    assert controller.data_shard_service is not None
    model, expected = nn.Linear(1, 1), nn.Linear(1, 1)
    expected.load_state_dict(model.state_dict())
    made = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    optimizer = DistributedOptimizer(made, fixed_global_batch_size=True)
    assert isinstance(optimizer, kind)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    plain = kind(expected.parameters(), lr=0.1)  # type: ignore[call-arg]
    plain_scheduler = torch.optim.lr_scheduler.StepLR(plain, step_size=4, gamma=0.5)
    with controller.scope():
        for x, y in DataLoader(Points(controller.data_shard_service), 8):
            for trained, steps in ((model, (optimizer, scheduler)), (expected, (plain, plain_scheduler))):
                F.mse_loss(trained(x), y).backward()
                for one in steps:
                    one.step()
            plain.zero_grad()
    assert optimizer.param_groups[0]["lr"] == made.param_groups[0]["lr"] == 0.1 / 16
    assert torch.equal(model.weight, expected.weight)
    saved = optimizer.state_dict()
    assert saved["state"].keys() == plain.state_dict()["state"].keys()
    optimizer.load_state_dict(saved)
    assert optimizer.state is made.state


def test_processes_of_a_loader_do_not_hand_out_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    service = RecordIndexService(4, 1, 8)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: "in a process of a loader")
    for fetch in (service.fetch_record_index, service.fetch_shard):
        with pytest.raises(InputError, match="num_workers=0"):
            fetch()


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="dataset_size must be a whole number of at least 1, got 0"):
        RecordIndexService(4)
    with pytest.raises(InputError, match=r"must be a torch\.optim\.Optimizer, got Linear"):
        DistributedOptimizer(nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not part of a controller"):
        DistributedOptimizer(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)).step()
