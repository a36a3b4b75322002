"""trek.nn.Embedding and EmbeddingBag train what torch's modules train."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import trek
from trek.errors import ConfigError, InputError
from trek.nn import Embedding, EmbeddingBag
from trek.strategies import open_strategy
from trek.testing.rating_trial import RatingTrial
from trek.world import World


def step(strategy: Any, optimizer: torch.optim.Optimizer) -> None:
    strategy.step(optimizer, lambda one: one.step())
    optimizer.zero_grad()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.SparseAdam])
def test_an_embedding_equals_torchs_sparse_one(kind: Any) -> None:
    own, peer = Embedding("t", dim=3), nn.Embedding(30, 3, sparse=True)
    strategy = open_strategy("solo", World())
    strategy.wrap_model(own)
    peer.weight.data = own(torch.arange(30)).detach()
    own.clear()
    optimizers = [kind(module.parameters(), lr=0.1) for module in (own, peer)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        ids = torch.randint(0, 30, (4, 5), generator=generator)
        weights = torch.randn(4, 5, 3, generator=generator)
        for module in (own, peer):
            (module(ids) * weights).sum().backward()
        step(strategy, optimizers[0])
        with torch.sparse.check_sparse_tensor_invariants(enable=True):
            optimizers[1].step()
        optimizers[1].zero_grad()
    torch.testing.assert_close(own(torch.arange(30)), peer.weight, rtol=1e-6, atol=1e-7)


def test_a_frozen_table_keeps_its_rows_and_makes_none() -> None:
    model = nn.ModuleList([Embedding("frozen", dim=3), Embedding("trained", dim=3)])
    frozen, trained = model
    frozen.weight.requires_grad_(requires_grad=False)
    strategy = open_strategy("solo", World())
    strategy.wrap_model(model)
    ids = torch.arange(5)
    before = frozen(ids).detach()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(2):
        (frozen(ids) * trained(ids)).sum().backward()
        step(strategy, optimizer)
    assert torch.equal(frozen(ids), before)
    assert len(frozen.state_dict()["ids"]) == 0
    assert len(trained.state_dict()["ids"]) == 5
    frozen.weight.requires_grad_()
    frozen(ids).sum().backward()
    step(strategy, optimizer)
    assert not torch.equal(frozen(ids), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", [Embedding, EmbeddingBag])
def test_rows_have_the_type_of_the_model_and_are_trained_as_float32(kind: Any, dtype: torch.dtype) -> None:
    model = nn.Sequential(kind("t", dim=3), nn.Linear(3, 1)).to(dtype)
    strategy = open_strategy("solo", World())
    strategy.wrap_model(model)
    ids = torch.arange(6).view(2, 3)
    before = model(ids)
    assert before.dtype == dtype
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(ids).sum().backward()
    step(strategy, optimizer)
    assert not torch.equal(model(ids), before)
    assert model.state_dict()["0.rows"].dtype == torch.float32


def test_a_copy_reads_the_rows_that_are_trained_until_it_loads_its_own() -> None:
    model, other = (nn.Sequential(Embedding("t", dim=3), nn.Linear(3, 1)) for _ in range(2))
    strategy = open_strategy("solo", World())
    strategy.wrap_model(model)
    ids = torch.arange(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    copied = averaged.module
    model(ids).sum().backward()
    step(strategy, optimizer)
    assert torch.equal(copied[0].eval()(ids), model[0](ids))
    with pytest.raises(InputError, match="not connected"):
        copied[0].train()(ids)
    before = model(ids)
    other.load_state_dict(model.state_dict())
    again = copy.deepcopy(other).eval()
    copied.load_state_dict({**model.state_dict(), "0.rows": torch.zeros(6, 3)})
    assert not copied[0].eval()(ids).any()
    assert torch.equal(model(ids), before)
    other.load_state_dict(copied.state_dict())
    assert torch.equal(again(ids), before)


def test_a_model_that_was_used_loads_the_state_of_a_fresh_one() -> None:
    used, fresh = (nn.Sequential(Embedding("t", dim=3)).eval() for _ in range(2))
    used(torch.arange(4))
    assert used.state_dict().keys() == fresh.state_dict().keys() == {"0.ids", "0.rows"}
    used.load_state_dict(fresh.state_dict())


@pytest.mark.parametrize(("kind", "shape"), [(Embedding, (6,)), (EmbeddingBag, (2, 3))])
def test_a_compiled_model_looks_rows_up_and_trains_them(kind: Any, shape: tuple[int, ...]) -> None:
    own, peer = (nn.Sequential(kind("t", dim=3), nn.Linear(3, 1)) for _ in range(2))
    peer[1].load_state_dict(own[1].state_dict())
    ids = torch.arange(6).view(shape)
    for model, forward in ((own, torch.compile(own, backend="aot_eager")), (peer, peer)):
        strategy = open_strategy("solo", World())
        strategy.wrap_model(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            forward(ids).sum().backward()
            step(strategy, optimizer)
    assert torch.equal(own(ids), peer(ids))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_pools_as_torchs_does(mode: Any) -> None:
    own, peer = EmbeddingBag("t", dim=3, mode=mode), nn.EmbeddingBag(30, 3, mode=mode)
    open_strategy("solo", World()).wrap_model(own)
    rows, _ = own.look_up(torch.arange(30))
    peer.weight.data = rows.detach()
    ids, offsets = torch.tensor([4, 5, 4, 9, 2, 2]), torch.tensor([0, 3, 3])
    assert torch.equal(own(ids, offsets), peer(ids, offsets))
    assert torch.equal(own(ids.view(2, 3)), peer(ids.view(2, 3)))
    jagged = torch.nested.nested_tensor_from_jagged(ids, torch.tensor([0, 3, 3, 6]))
    assert torch.equal(own(jagged), peer(ids, offsets))
    nothing = torch.empty(0, dtype=torch.int64)
    assert own(nothing, torch.tensor([0, 0])).tolist() == [[0] * 3] * 2


def test_the_group_of_the_placeholder_sets_the_rule() -> None:
    model = nn.ModuleDict({"slow": Embedding("slow", dim=2), "fast": Embedding("fast", dim=2)})
    strategy = open_strategy("solo", World())
    strategy.wrap_model(model)
    groups = [{"params": model["slow"].parameters(), "lr": 0.0}, {"params": model["fast"].parameters(), "lr": 1.0}]
    optimizer = torch.optim.SGD(groups)
    before = {name: module(torch.tensor([7])).detach() for name, module in model.items()}
    for module in model.values():
        module.clear()
        module(torch.tensor([7, 7])).sum().backward()
    step(strategy, optimizer)
    assert torch.equal(model["slow"](torch.tensor([7])), before["slow"])
    assert torch.equal(model["fast"](torch.tensor([7])), before["fast"] - 2)


def test_clipping_counts_the_gradients_of_rows() -> None:
    model = Embedding("t", dim=2)
    strategy = open_strategy("solo", World())
    strategy.wrap_model(model)
    (3 * model(torch.tensor([1])).sum()).backward()
    norm = strategy.clip_norm(model.parameters(), 1.0)
    assert norm.item() == pytest.approx(18**0.5)
    assert model.used_rows()[0].grad.norm().item() == pytest.approx(1.0, rel=1e-4)


def test_evaluation_makes_no_rows_and_keeps_no_gradients() -> None:
    model = Embedding("t", dim=2)
    open_strategy("solo", World()).wrap_model(model)
    with torch.no_grad():
        model(torch.arange(5))
    assert model.used_rows() == []
    assert len(model.state_dict()["ids"]) == 0


def test_a_trained_model_is_loaded_for_evaluation_and_for_further_training() -> None:
    trained = Embedding("t", dim=2)
    strategy = open_strategy("solo", World())
    strategy.wrap_model(trained)
    trained(torch.tensor([5, -7])).sum().backward()
    step(strategy, torch.optim.SGD(trained.parameters(), lr=1.0))
    expected = trained(torch.tensor([5, 9]))
    fresh = Embedding("t", dim=2).eval()
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh(torch.tensor([5, 9])), expected)
    open_strategy("solo", World()).wrap_model(fresh.train())
    assert torch.equal(fresh(torch.tensor([5, 9])), expected)
    embedding, index = trek.ps.to_embedding(*trained.state_dict().values())
    assert torch.equal(embedding(torch.tensor([index[5]])), expected[:1])
    assert sorted(index) == [-7, 5]
    assert len(embedding.weight) == 3


def test_a_table_with_a_memory_limit_trains_and_leaves_no_file() -> None:
    model = Embedding("t", dim=2, memory_bytes=100)
    strategy = open_strategy("solo", World())
    strategy.wrap_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for start in range(0, 100, 10):
        model(torch.arange(start, start + 10)).sum().backward()
        step(strategy, optimizer)
    assert len(model.state_dict()["ids"]) == 100
    strategy.teardown()


def test_wrong_uses_are_named() -> None:
    with pytest.raises(InputError, match="not connected to a training"):
        Embedding("t", dim=2)(torch.tensor([1]))
    with pytest.raises(ConfigError, match="different settings"):
        open_strategy("solo", World()).wrap_model(nn.Sequential(Embedding("t", dim=2), Embedding("t", dim=3)))
    with pytest.raises(ConfigError, match="initial must be"):
        Embedding("t", dim=2, initial="large")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mode of a bag"):
        EmbeddingBag("t", dim=2, mode="median")  # type: ignore[arg-type]
    model = Embedding("t", dim=2)
    open_strategy("solo", World()).wrap_model(model)
    with pytest.raises(InputError, match="must be int64"):
        model(torch.tensor([1.5]))
    assert trek.nn.Embedding is Embedding


def test_a_run_that_is_saved_inside_a_step_goes_on_with_the_gradients_of_its_rows() -> None:
    options: dict[str, Any] = {"accumulate": 3, "show_progress": False, "hparams": {"global_batch_size": 8}}
    straight = trek.fit(RatingTrial, max_length=trek.batches(6), **options)
    part = trek.fit(RatingTrial, max_length=trek.batches(4), **options)
    resumed = trek.fit(RatingTrial, max_length=trek.batches(6), resume=part.checkpoint, **options)
    assert straight.checkpoint is not None
    assert resumed.checkpoint is not None
    expected = straight.checkpoint.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.checkpoint.state_dict().items())
