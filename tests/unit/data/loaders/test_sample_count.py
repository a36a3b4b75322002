"""Samples in the batches of a stream: metrics and gradients are weighted by them, so a wrong count is a wrong mean."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, IterableDataset

import trek
from trek.data.loaders import as_loader
from trek.data.loaders.base import count_samples

X = torch.zeros(4, 7)
Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Fields:
    step: int
    x: torch.Tensor


class Custom:
    """A batch as torch's documentation of custom pinning has it."""

    def __init__(self) -> None:
        self.name = "batch"
        self.inp, self.tgt = X, torch.zeros(4)


FOUR: dict[str, Any] = {
    "tensor": X,
    "pair": [X, torch.zeros(4)],
    "texts": ["some text", "b", "c", "d"],
    "texts and labels": (["some text", "b", "c", "d"], torch.zeros(4)),
    "labels and texts": (torch.zeros(4), ("some text", "b", "c", "d")),
    "dict of texts": {"text": ["some text", "b", "c", "d"], "label": torch.zeros(4)},
    "UserDict": UserDict(input_ids=X, attention_mask=X, token_type_ids=X),
    "OrderedDict": OrderedDict(x=X),
    "ints": ([1, 2, 3, 4], X),
    "only ints": {"ids": [1, 2, 3, 4]},
    "bytes": ([b"long bytes", b"b", b"c", b"d"], [0, 1, 0, 1]),
    "scalar first": {"step": torch.tensor(3), "x": X},
    "number first": (3, X),
    "None first": (None, X),
    "dataclass": Fields(3, X),
    "namedtuple": Pair(X, torch.zeros(4)),
    "object": Custom(),
    "numpy": (np.zeros((4, 2)), np.zeros(4)),
    "nested": ((X, X), {"y": torch.zeros(4)}),
    "pairs of pairs": [[X, X], [X, X]],
    "tokens": {"ids": [[1, 2, 3], [4, 5], [6], [7, 8]]},
    "tokens and labels": ([[1, 2, 3], [4, 5], [6], [7, 8]], torch.zeros(4)),
    "samples": [(torch.zeros(7), 1), (torch.zeros(7), 0), (torch.zeros(7), 1), (torch.zeros(7), 1)],
    "images of several sizes and targets": (
        [torch.zeros(3, size, 5) for size in (4, 6, 8, 9)],
        [{"boxes": torch.zeros(count, 4), "label": torch.zeros(count)} for count in (2, 1, 3, 2)],
    ),
    "shared mask first": (torch.zeros(7, 7), X, torch.zeros(4)),
    "packed": pack_sequence([torch.zeros(3), torch.zeros(2), torch.zeros(2), torch.zeros(1)]),
}


@pytest.mark.parametrize("kind", FOUR)
def test_samples_are_counted_in_every_kind_of_batch(kind: str) -> None:
    """A batch of texts counted the letters of the first one, a UserDict its fields, a list of ints or a scalar one."""
    assert count_samples(FOUR[kind]) == 4


@pytest.mark.parametrize("batch", ["a text", 3, torch.tensor(3), {}, [], None, object()])
def test_what_has_no_length_is_one_sample(batch: Any) -> None:
    assert count_samples(batch) == 1


def _field(count: int) -> st.SearchStrategy[Any]:
    words = st.text(max_size=9)
    tensors = st.integers(1, 3).map(lambda width: torch.zeros(count, width))
    plain = st.one_of(
        tensors,
        st.just(np.zeros(count)),
        st.lists(words, min_size=count, max_size=count),
        st.lists(st.integers(), min_size=count, max_size=count).map(tuple),
        st.lists(st.lists(st.integers(), min_size=1, max_size=5), min_size=count, max_size=count),
    )
    return st.one_of(plain, st.tuples(tensors, tensors), st.fixed_dictionaries({"a": tensors, "b": plain}))


@st.composite
def _batches(draw: st.DrawFn) -> tuple[int, Any]:
    """A batch of some fields, scalars anywhere among them, in some kind of container."""
    count = draw(st.integers(1, 6))
    scalars = draw(st.lists(st.sampled_from([None, 3, "epoch", torch.tensor(1.0)]), max_size=2))
    fields = draw(st.permutations([*draw(st.lists(_field(count), min_size=1, max_size=4)), *scalars]))
    named = {f"field_{index}": field for index, field in enumerate(fields)}
    return count, draw(st.sampled_from([named, UserDict(named), OrderedDict(named)]))


@given(_batches())
def test_samples_are_counted_whatever_the_fields_and_their_order(drawn: tuple[int, Any]) -> None:
    count, batch = drawn
    assert count_samples(batch) == count


class Rows(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.arange(64.0))


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_batch_of_a_stream_has_the_records_of_all_processes(size: int, is_sharded: bool) -> None:
    """Records of one process were taken for those of all, so trek.records(n) on N workers trained N times as many."""
    world = trek.World(rank=0, size=size, device_name="cpu")
    loaders = [
        as_loader(DataLoader(Rows(), batch_size=4), world=world, seed=0),
        trek.DataLoader(Rows(), 4, is_sharded=is_sharded).bind(world, seed=0),
    ]
    assert [loader.batch_records for loader in loaders] == [4 * size] * 2
    shared = trek.DataLoader(Rows(), global_batch_size=10, is_sharded=is_sharded).bind(world, seed=0)
    assert shared.batch_records == 10
