"""Generators and counters of a user's own objects are found, saved and put back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Sampler

from trek.data.loaders.own_generators import Generator, find_generators, seed_generator
from trek.data.loaders.reader_state import ReaderState
from trek.wire.values import from_bytes, to_bytes

MAKERS: dict[str, Callable[[], Any]] = {
    "torch": torch.Generator,
    "python": lambda: random.Random(1),
    "numpy": lambda: np.random.default_rng(1),
    "numpy_mersenne": lambda: np.random.Generator(np.random.MT19937(1)),
    "numpy_philox": lambda: np.random.Generator(np.random.Philox(1)),
    "numpy_legacy": lambda: np.random.RandomState(1),
    "numpy_bits": lambda: np.random.SFC64(1),
}


def draw(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    if isinstance(generator, np.random.BitGenerator):
        generator = np.random.Generator(generator)
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(3)]
    return [float(value) for value in generator.standard_normal(3)]


class Holder:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_generator_goes_on_where_its_state_was_taken(kind: str) -> None:
    generator = MAKERS[kind]()
    state = ReaderState(reading={"dataset": Holder(rng=generator)})
    draw(generator)
    saved = from_bytes(to_bytes(state.state_dict()))  # as a checkpoint does
    expected = draw(generator)
    draw(generator)
    state.load_state_dict(saved)
    assert draw(generator) == expected


@pytest.mark.parametrize("kind", MAKERS)
def test_a_seed_decides_what_a_generator_draws(kind: str) -> None:
    one, other = MAKERS[kind](), MAKERS[kind]()
    draw(other)
    for generator in (one, other):
        seed_generator(generator, 2**62 + 5)
    assert draw(one) == draw(other)


SHARED = np.random.default_rng(3)


class WithClassAttribute:
    rng = random.Random(2)


class WithSlots:
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = random.Random(2)


class Collator:
    def __init__(self) -> None:
        self.rng = random.Random(2)

    def collate(self, batch: list[Any]) -> float:
        return self.rng.random()


class UsesGlobal:
    def __call__(self, batch: list[Any]) -> Any:
        return [SHARED.random() for _ in batch]


def in_closure() -> Callable[[Any], float]:
    rng = random.Random(4)
    return lambda batch: rng.random()


def add_noise(batch: Any, rng: random.Random) -> float:
    return rng.random()


@pytest.mark.parametrize(
    "root",
    [
        Holder(inner=Holder(transforms=[Holder(rng=random.Random(1))])),
        Holder(by_name={"a": torch.Generator()}),
        WithClassAttribute(),
        WithSlots(),
        UsesGlobal(),
        in_closure(),
        partial(add_noise, rng=random.Random(1)),
        Collator().collate,
    ],
    ids=["nested", "dict", "class", "slots", "global", "closure", "partial", "method"],
)
def test_a_generator_is_found_wherever_it_is_kept(root: Any) -> None:
    found = list(find_generators({"root": root}).values())
    assert len(found) == 1
    assert isinstance(found[0], Generator)


def test_the_global_generators_are_left_to_others() -> None:
    everywhere = Holder(a=random._inst, b=np.random.mtrand._rand, c=torch.default_generator)  # type: ignore[attr-defined]
    assert not find_generators({"root": everywhere})


class Bucketed(Sampler[int]):
    def __init__(self) -> None:
        self.calls, self.batch_size = 0, 8
        self.rows = [1, 2, 3]
        self.buckets = [[1, 2], [3]]
        self.weights = torch.ones(3)
        self.data_source = Rows()

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows)


class Rows(Dataset[int]):
    num_read = 0

    def __init__(self) -> None:
        self.num_read = 0


def test_what_iteration_changed_is_restored_and_what_the_user_set_is_not() -> None:
    sampler = Bucketed()
    state = ReaderState(ordering={"sampler": sampler})
    sampler.calls += 2
    sampler.rows.reverse()
    sampler.buckets[0].reverse()
    sampler.weights[0] = 5
    sampler.data_source.num_read = 9
    saved = from_bytes(to_bytes(state.state_dict()))
    other = Bucketed()
    other.batch_size = 16
    rows = other.rows
    ReaderState(ordering={"sampler": other}).load_state_dict(saved)
    assert (other.calls, other.batch_size, other.buckets) == (2, 16, [[2, 1], [3]])
    assert other.rows is rows
    assert rows == [3, 2, 1]
    assert other.weights.tolist() == [5, 1, 1]
    assert other.data_source.num_read == 0  # a dataset is asked for rows, and decides nothing about their order


def test_an_iterator_that_cannot_be_saved_is_named(caplog: pytest.LogCaptureFixture) -> None:
    state = ReaderState(ordering={"sampler": Holder(rows=itertools.cycle([1, 2]))})
    state.state_dict()
    state.state_dict()
    (record,) = caplog.records
    assert "sampler.rows holds a cycle, whose position cannot be saved" in record.getMessage()
