"""Rows that are updated where they lie come out as those that are copied out, updated by torch and copied back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trek.ps.compiled import AHEAD
from trek.ps.row_copies import gather, scatter
from trek.ps.rows_in_place import add_rows, can_add_in_place
from trek.ps.rules import Rule, Updater


@pytest.mark.parametrize("dim", [1, 3, 16, 33])
def test_rows_in_place_equal_torch_to_the_bit(dim: int) -> None:
    rng = np.random.default_rng(dim)
    assert can_add_in_place("SGD", {"momentum": 0, "weight_decay": 0, "maximize": False})
    values = rng.standard_normal((300, dim)).astype(np.float32)
    for count in (0, 1, AHEAD, 100):
        rows = rng.choice(300, count, replace=False).astype(np.int32)
        gradients = rng.standard_normal((count, dim)).astype(np.float32)
        expected = torch.from_numpy(values).clone()
        expected[torch.from_numpy(rows)] = expected[torch.from_numpy(rows)].add(torch.from_numpy(gradients), alpha=-0.3)
        add_rows(values, rows, gradients, alpha=-0.3)
        assert torch.equal(torch.from_numpy(values), expected)


@pytest.mark.parametrize("rule", [Rule.named("SGD", lr=0.1, weight_decay=0.1), Rule.named("Adagrad")])
def test_rules_with_more_to_do_are_left_to_torch(rule: Rule) -> None:
    values = np.ones((4, 2), np.float32)
    updater = Updater(rule, torch.empty(0))
    assert not updater.add_rows(values, np.arange(4, dtype=np.int32), values.copy(), scale_lr=1.0)
    assert (values == 1).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 16])
def test_rows_are_copied_whatever_their_size(dim: int, dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(dim)
    array = rng.integers(0, 1000, (200, dim)).astype(dtype)
    rows = rng.choice(200, 60, replace=False).astype(np.int32)
    block = gather(array, rows)
    assert np.array_equal(block, array[rows])
    target = np.zeros_like(array)
    scatter(target, rows, block)
    assert np.array_equal(target[rows], block)
    assert not np.delete(target, rows, axis=0).any()
