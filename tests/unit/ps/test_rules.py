"""The arithmetic of servers is torch.optim's: to the bit for dense parameters, by the lazy rule for rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trek.errors import InputError
from trek.ps import FTRL
from trek.ps.dense import DenseParameter
from trek.ps.rules import Rule, Updater
from trek.ps.table import Table
from trek.ps.table_spec import Initial, TableSpec

RULES: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.99)}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    (FTRL, {"lr": 0.1, "l1": 0.01, "l2": 0.1}),
]
NAMES = [f"{kind.__name__}-{index}" for index, (kind, _) in enumerate(RULES)]


@pytest.mark.parametrize(("kind", "settings"), RULES, ids=NAMES)
def test_dense_parameters_equal_torch_to_the_bit(kind: Any, settings: dict[str, Any]) -> None:
    own = torch.nn.Parameter(torch.randn(33, 7, generator=torch.Generator().manual_seed(0)))
    optimizer = kind([own], **settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    server = Updater(Rule.of(optimizer, optimizer.param_groups[0]), own.detach().clone())
    value = server._parameter
    for step in range(20):
        gradient = torch.randn(33, 7, generator=torch.Generator().manual_seed(step + 1))
        server.follow(Rule.of(optimizer, optimizer.param_groups[0]))
        server.update(gradient.clone())
        own.grad = gradient
        optimizer.step()
        scheduler.step()
        assert torch.equal(value, own)


@pytest.mark.parametrize(("kind", "settings"), RULES, ids=NAMES)
def test_rows_follow_the_dense_rule_where_all_are_pushed(kind: Any, settings: dict[str, Any]) -> None:
    table = Table(TableSpec.of(name="t", dim=5))
    ids = np.arange(-10, 20)
    own = torch.nn.Parameter(torch.from_numpy(table.pull(ids)))
    optimizer = kind([own], **settings)
    for step in range(1, 15):
        gradient = torch.randn(30, 5, generator=torch.Generator().manual_seed(step))
        order = np.random.default_rng(step).permutation(30)
        rule = Rule.of(optimizer, optimizer.param_groups[0])
        table.push(ids[order], gradient.numpy()[order].copy(), rule=rule, version=step)
        own.grad = gradient
        optimizer.step()
        torch.testing.assert_close(torch.from_numpy(table.pull(ids)), own.detach(), rtol=1e-6, atol=1e-7)


BLOCK_RULES = [*RULES, (torch.optim.SparseAdam, {"lr": 0.01}), (torch.optim.Adam, {"lr": 0.01, "maximize": True})]


@pytest.mark.parametrize(("kind", "settings"), BLOCK_RULES, ids=[kind.__name__ for kind, _ in BLOCK_RULES])
def test_a_block_of_rows_equals_torchs_class_to_the_bit(kind: Any, settings: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.nn.Parameter(torch.randn(37, 11, generator=generator))
    optimizer = kind([own], **settings)
    rows = Updater(Rule.of(optimizer, optimizer.param_groups[0]), torch.empty(0))
    values = own.detach().clone()
    slots = {name: torch.full_like(values, first) for name, first in rows.slots.items()}
    for step in range(1, 12):
        gradient = torch.randn(37, 11, generator=generator)
        rows.update_rows(values, gradient.clone(), slots=slots, step=step)
        own.grad = gradient.to_sparse(1) if kind is torch.optim.SparseAdam else gradient
        with torch.sparse.check_sparse_tensor_invariants(enable=True):
            optimizer.step()
        assert torch.equal(values, own)
        assert all(torch.equal(slot, optimizer.state[own][name]) for name, slot in slots.items())


SPARSE = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.1}),
    (torch.optim.SparseAdam, {"lr": 0.01}),
]


@pytest.mark.parametrize(("kind", "settings"), SPARSE, ids=[kind.__name__ for kind, _ in SPARSE])
def test_rows_equal_torchs_sparse_rule(kind: Any, settings: dict[str, Any]) -> None:
    table = Table(TableSpec.of(name="t", dim=8))
    embedding = torch.nn.Embedding(50, 8, sparse=True)
    embedding.weight.data = torch.from_numpy(table.pull(np.arange(50)))
    optimizer = kind(embedding.parameters(), **settings)
    rng = np.random.default_rng(0)
    for step in range(1, 30):
        ids = rng.choice(50, 12, replace=False)
        gradient = torch.from_numpy(rng.standard_normal((12, 8)).astype(np.float32))
        rule = Rule.of(optimizer, optimizer.param_groups[0])
        table.push(ids, gradient.numpy(), rule=rule, version=step)
        index = torch.from_numpy(ids)[None]
        embedding.weight.grad = torch.sparse_coo_tensor(index, gradient, (50, 8), check_invariants=True)
        with torch.sparse.check_sparse_tensor_invariants(enable=True):
            optimizer.step()
    found = torch.from_numpy(table.pull(np.arange(50)))
    if kind is torch.optim.Adagrad:  # torch divides before it multiplies there: one rounding apart
        torch.testing.assert_close(found, embedding.weight.detach(), rtol=1e-6, atol=1e-7)
    else:
        assert torch.equal(found, embedding.weight.detach())


def test_the_lazy_rule_leaves_other_rows_alone() -> None:
    table = Table(TableSpec.of(name="t", dim=2, initial=Initial(kind="constant", value=1.0)))
    rule = Rule.named("SGD", lr=0.1, momentum=0.9, weight_decay=0.1)
    both, one = np.array([1, 2]), np.array([1])
    table.push(both, np.ones((2, 2), np.float32), rule=rule, version=1)
    before = table.pull(np.array([2]))
    table.push(one, np.ones((1, 2), np.float32), rule=rule, version=2)
    assert np.array_equal(table.pull(np.array([2])), before)
    assert not np.array_equal(table.pull(one), before)


def test_slots_start_at_the_optimizers_value_in_reused_rows() -> None:
    table = Table(TableSpec.of(name="t", dim=2, max_rows=1, initial=Initial(kind="zeros")))
    rule = Rule.named("Adagrad", lr=0.1, initial_accumulator_value=0.5)
    for version in range(1, 4):
        table.push(np.array([version]), np.full((1, 2), 2.0, np.float32), rule=rule, version=version)
    assert table.state().slots["sum"].tolist() == [[4.5, 4.5]]
    assert np.isfinite(table.pull(np.array([3]))).all()


def test_an_optimizer_of_the_same_name_is_not_taken_for_torchs() -> None:
    class Adam(torch.optim.Adam):
        """Another rule."""

    optimizer = Adam([torch.nn.Parameter(torch.ones(1))])
    with pytest.raises(InputError, match="know torch's Adam"):
        Rule.of(optimizer, optimizer.param_groups[0])


def test_what_rows_cannot_follow_is_refused() -> None:
    table = Table(TableSpec.of(name="t", dim=2))
    ids, gradient = np.array([1]), np.ones((1, 2), np.float32)
    with pytest.raises(InputError, match="dampening"):
        table.push(ids, gradient, rule=Rule.named("SGD", lr=1.0, momentum=0.9, dampening=0.5), version=1)
    table.push(ids, gradient, rule=Rule.named("SGD", lr=1.0), version=1)
    with pytest.raises(InputError, match="cannot change to Adam"):
        table.push(ids, gradient, rule=Rule.named("Adam"), version=2)
    with pytest.raises(InputError, match="which state"):
        table.push(ids, gradient, rule=Rule.named("SGD", lr=1.0, momentum=0.5), version=2)
    with pytest.raises(InputError, match="not dense parameters"):
        DenseParameter(torch.ones(2), version=0).follow(Rule.named("SparseAdam"))
    with pytest.raises(InputError, match="invalid settings"):
        Rule.named("SGD", lr=-1.0)
