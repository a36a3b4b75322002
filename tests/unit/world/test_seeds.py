"""Seeding the global generators, and carrying their states."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from trek.errors import InputError
from trek.world import random_state, restore_random_state, seed_everything


def _draw() -> tuple[float, float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(())), random.gauss(0, 1)


def test_the_same_seed_gives_the_same_numbers() -> None:
    seed_everything(7)
    first = _draw()
    seed_everything(7)
    assert _draw() == first


def test_rank_zero_draws_what_plain_torch_draws() -> None:
    seed_everything(7)
    ours = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(ours, torch.rand(3))


def test_ranks_draw_different_numbers_and_do_not_meet_a_neighbouring_seed() -> None:
    draws = set()
    for seed in (0, 1):
        for rank in (0, 1, 2):
            seed_everything(seed, rank=rank)
            draws.add(_draw())
    assert len(draws) == 6


def test_a_restored_state_goes_on_where_it_was() -> None:
    seed_everything(3)
    _draw()
    state = random_state()
    expected = [_draw() for _ in range(3)]
    restore_random_state(state)
    assert [_draw() for _ in range(3)] == expected


def test_a_state_is_made_of_json_and_tensors() -> None:
    state = random_state()
    json.dumps([state["python"], state["numpy"]])
    assert isinstance(state["torch"], torch.Tensor)
    assert all(isinstance(one, torch.Tensor) for one in state["cuda"])


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "7"])
def test_a_seed_that_cannot_be_is_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        seed_everything(seed)  # type: ignore[arg-type]
