"""Models that need more of ddp than dense gradients: buffers that training reads, sparse gradients, methods, gaps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trek
from trek.testing.trials import make_points

WAYS: dict[str, dict[str, Any]] = {
    "shared memory": {},
    "one message": {"shared_memory": False},
    "buckets": {"shared_memory": False, "flat_bytes": 0},
}


class Normalised(nn.Module):
    """Reads a running mean in training; one buffer never changes, one is replaced, one counts, one grows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.register_buffer("constant", torch.full((3,), 2.0))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("cache", torch.zeros(0))
        self.norm = nn.BatchNorm1d(6).double()
        self.linear = nn.Linear(6, 2).double()
        self.temperature = 2.0

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Not `forward`: a wrapper would not see it."""
        if self.training:
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.scale = self.scale * 0.9 + 0.1 * x.detach().std()
            self.count += 1
            self.cache = torch.zeros(len(self.cache) + int(x[0, 0] > 0))
        return self.linear(self.norm((x - self.mean) / self.scale)) / self.temperature


def train_normalised(tr: trek.Traveler, save_every: int) -> Any:
    model = tr.add_model(Normalised())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    data = tr.add_loader(make_points(36, dtype=torch.float64), global_batch_size=6, shuffle=True)
    for _ in tr.epochs(2):
        for points, labels in tr.train(data):
            tr.backward(F.cross_entropy(model.logits(points), labels))
            tr.step(optimizer)
            if save_every and tr.position.batches % save_every == 0:
                tr.save()
    local = {**dict(model.named_parameters()), "mean": model.mean, "scale": model.scale, "count": model.count}
    return tr.strategy.gather({name: one.tolist() for name, one in local.items()})


def run_normalised(*, save_every: int = 0, accumulate: int = 1, **settings: Any) -> Any:
    settings = {"workers": 2, "show_progress": False, "accumulate": accumulate, **settings}
    return trek.run(train_normalised, save_every, **settings)


def test_buffers_that_training_reads_are_equal_on_all_ranks_and_saving_changes_nothing() -> None:
    """Each rank went on with its own, until a save overwrote them with the leader's: saving changed training."""
    whole = run_normalised(name="whole")
    assert whole[0] == whole[1]
    assert whole[0]["count"] == 12
    assert run_normalised(strategy_options=WAYS["buckets"])[0] == whole[0]
    assert run_normalised(save_every=1)[0] == whole[0]


def test_buffers_inside_a_group_of_accumulated_batches_are_equal_too() -> None:
    whole = run_normalised(accumulate=3)
    assert whole[0] == whole[1]
    assert run_normalised(accumulate=3, save_every=1)[0] == whole[0]


def by_torch(tr: trek.Traveler) -> Any:
    """What torch's own wrapper trains from the same start on the same rows."""
    torch.manual_seed(1)
    model = DistributedDataParallel(_Embedded(), broadcast_buffers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rows, labels = _rows()
    for first in range(0, 40, 8):
        mine = slice(first + tr.world.rank, first + 8, 2)
        F.cross_entropy(model(rows[mine]), labels[mine]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.tolist() for name, value in model.module.state_dict().items()}


class _Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.table = nn.Embedding(50, 3, sparse=True)
        self.linear = nn.Linear(3, 2)
        self.unused = nn.Linear(3, 2).requires_grad_(False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.table(rows)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(found.mean(0), alpha=0.1)
        return self.linear(found - self.mean)


def _rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 50, (40,), generator=generator), torch.randint(0, 2, (40,), generator=generator)


def by_trek(tr: trek.Traveler) -> Any:
    torch.manual_seed(1)
    model = tr.add_model(_Embedded())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.5))
    data = tr.add_loader(_rows(), batch_size=4)
    for _ in tr.epochs(1):
        for rows, labels in tr.train(data):
            tr.backward(F.cross_entropy(model(rows), labels))
            tr.step(optimizer)
    return {name: value.tolist() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("way", WAYS)
def test_sparse_gradients_and_buffers_train_what_torchs_wrapper_does(way: str) -> None:
    """`nn.Embedding(sparse=True)` failed at the first step."""
    ours = trek.run(by_trek, workers=2, strategy_options=WAYS[way], show_progress=False)
    theirs = trek.run(by_torch, workers=2, show_progress=False)
    for name in theirs:
        torch.testing.assert_close(torch.tensor(ours[name]), torch.tensor(theirs[name]), rtol=1e-6, atol=1e-7)


def gaps(tr: trek.Traveler) -> Any:
    """A layer that only rank 1 uses, one that nobody does, a repeated backward pass, and a batch without a step."""
    torch.manual_seed(2)
    layers = {name: nn.Linear(3, 3).double() for name in ("all", "one", "none")}
    model = tr.add_model(nn.ModuleDict(layers))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1))
    data = tr.add_loader((torch.arange(60.0, dtype=torch.float64).view(20, 3) / 60,), batch_size=1)
    assert isinstance(model, nn.ModuleDict)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            loss = model["all"](x).square().mean()
            if tr.world.rank == 1:
                loss = loss + model["one"](x).square().mean()
            tr.backward(loss)
            if tr.position.batches == 6:
                optimizer.zero_grad()  # skipped, on all ranks
            else:
                tr.step(optimizer)
    return tr.strategy.gather({name: value.tolist() for name, value in model.state_dict().items()})


def test_parameters_may_stay_without_a_gradient_whichever_way_gradients_travel() -> None:
    """A model in torch's wrapper was refused, and had lost its own attributes."""
    results = [trek.run(gaps, workers=2, strategy_options=way, show_progress=False) for way in WAYS.values()]
    for of_ranks in results:
        assert of_ranks[0] == of_ranks[1] == results[0][0]


def adversaries(tr: trek.Traveler) -> Any:
    """The judge gets a gradient twice in a batch, of which one is thrown away."""
    torch.manual_seed(3)
    maker, judge = tr.add_model(nn.Linear(3, 3).double()), tr.add_model(nn.Linear(3, 1).double())
    makes = tr.add_optimizer(torch.optim.SGD(maker.parameters(), lr=0.1))
    judges = tr.add_optimizer(torch.optim.SGD(judge.parameters(), lr=0.1))
    data = tr.add_loader((torch.arange(60.0, dtype=torch.float64).view(20, 3) / 60,), batch_size=2)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            made = maker(x)
            tr.backward(F.softplus(judge(made.detach())).mean())
            tr.backward(F.softplus(-judge(x)).mean())
            tr.step(judges)
            tr.backward(F.softplus(-judge(made)).mean())
            tr.step(makes)
            judges.zero_grad()
    return [value.tolist() for model in (maker, judge) for value in model.state_dict().values()]


def test_several_backward_passes_for_one_step_are_summed_whichever_way_gradients_travel() -> None:
    results = [trek.run(adversaries, workers=2, strategy_options=way, show_progress=False) for way in WAYS.values()]
    assert results[0] == results[1] == results[2]


def repeated_later(tr: trek.Traveler) -> None:
    model = tr.add_model(nn.Linear(3, 1))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    data = tr.add_loader((torch.ones(20, 3),), batch_size=1)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            for _ in range(2 if tr.position.batches == 5 else 1):
                tr.backward(model(x).mean())
            tr.step(optimizer)


def test_a_gradient_after_its_bucket_was_sent_is_an_error_with_a_remedy() -> None:
    with pytest.raises(trek.errors.InputError, match="got another gradient after its first had been sent"):
        trek.run(repeated_later, workers=2, strategy_options=WAYS["buckets"], show_progress=False)


def leftover_hooks(tr: trek.Traveler) -> int:
    model = tr.add_model(nn.Linear(3, 1))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    data = tr.add_loader((torch.ones(8, 3),), batch_size=1)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            tr.backward(model(x).mean())
            tr.step(optimizer)
    tr.close()
    assert not dist.is_initialized()
    model(torch.ones(1, 3)).sum().backward()  # a hook would want to send this
    return 1


def test_a_trained_model_is_an_ordinary_one_afterwards() -> None:
    assert trek.run(leftover_hooks, workers=2, strategy_options=WAYS["buckets"], show_progress=False) == 1


class _OfAllTypes(nn.Module):
    """Buffers of types that collectives have no sums for, a sparse constant, and a trained complex parameter."""

    TYPES = (torch.bool, torch.uint16, torch.uint64, torch.float8_e4m3fn, torch.complex32, torch.complex128)

    def __init__(self) -> None:
        super().__init__()
        for number, kind in enumerate(self.TYPES):
            self.register_buffer(f"buffer_{number}", torch.randint(0, 2, (8,)).to(kind))
        self.register_buffer("constant", torch.eye(4).to_sparse(), persistent=False)
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.complex128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.constant @ (x * self.weight).T.abs().float()).square().mean()


def train_all_types(tr: trek.Traveler) -> Any:
    torch.manual_seed(tr.world.rank)
    model = tr.add_model(_OfAllTypes())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    data = tr.add_loader((torch.ones(8, 4),), global_batch_size=4)
    for _ in tr.epochs(1):
        for (x,) in tr.train(data):
            tr.backward(model(x))
            tr.step(optimizer)
    tr.save()
    return tr.strategy.gather(
        [tensor.detach().reshape(-1).view(torch.uint8).tolist() for tensor in model.state_dict().values()]
    )


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_tensors_of_all_types_are_equal_on_all_ranks() -> None:
    first, second = trek.run(train_all_types, workers=2, show_progress=False)
    assert first == second
