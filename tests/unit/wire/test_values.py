"""State as JSON and tensors: whatever goes in comes out, and nothing that runs code goes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trek.errors import InputError
from trek.wire.values import decode, encode, from_bytes, to_bytes

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary()
tensors = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]), hnp.array_shapes(min_dims=0, max_dims=2)
).map(lambda array: torch.from_numpy(array.copy()))
arrays = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=3), elements=st.integers(0, 9))
frozen = st.frozensets(st.integers() | st.text(max_size=2) | st.frozensets(st.integers(), max_size=2), max_size=3)
keys = (
    st.text(max_size=3)
    | st.integers()
    | st.sampled_from(["$tensor", "$dict", "$tuple", "a"])
    | st.booleans()
    | st.tuples(frozen)
    | frozen
)
trees = st.recursive(
    plain | tensors | arrays | st.sets(st.integers() | st.text(max_size=2) | frozen, max_size=4) | frozen,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


def same(first: Any, second: Any) -> bool:
    """Equal in kind and value, tensors and arrays included."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first.nan_to_num(), second.nan_to_num())
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    return bool(first == second)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_a_tree_comes_back_as_it_was_through_json(tree: Any) -> None:
    encoded, held = encode(tree)
    assert same(decode(json.loads(json.dumps(encoded)), held), tree)


def test_numbers_that_json_has_no_word_for_survive() -> None:
    encoded, held = encode([float("inf"), float("-inf"), float("nan"), np.float32(0.5), np.int64(3)])
    up, down, neither, half, three = decode(json.loads(json.dumps(encoded)), held)
    assert (up, down, half, three) == (float("inf"), float("-inf"), 0.5, 3)
    assert neither != neither


def test_complex_numbers_survive() -> None:
    value = [1 + 2j, np.complex128(3j), np.array([4j])]
    encoded, held = encode(value)
    one, other, array = decode(json.loads(json.dumps(encoded)), held)
    assert (one, other, array.tolist()) == (1 + 2j, 3j, [4j])


@pytest.mark.parametrize(
    "value",
    [
        *(Path("x"), object(), lambda: None, torch.nn.Linear(1, 1)),
        *(np.array(["text"]), np.array([object()]), np.datetime64("2026-01-01"), np.longdouble(1)),
    ],
)
def test_an_object_is_refused_with_the_place_it_stands_at(value: Any) -> None:
    with pytest.raises(InputError, match=r"state\['optimizer'\]\[1\] is a .* without pickle"):
        encode({"optimizer": [0, value]})


@given(trees)
@settings(max_examples=200, deadline=None)
def test_a_message_between_ranks_is_what_was_sent(value: Any) -> None:
    """Values were gathered as pickles, which run code where they arrive."""
    assert same(from_bytes(to_bytes(value)), value)


class _Evil:
    def __reduce__(self) -> Any:
        raise AssertionError("it was pickled")


@pytest.mark.parametrize("value", [_Evil(), [_Evil()], {"a": _Evil()}, len, _Evil])
def test_what_only_a_pickle_could_hold_is_not_sent(value: Any) -> None:
    with pytest.raises(InputError, match="cannot be saved or sent to other ranks without pickle"):
        to_bytes(value)


@pytest.mark.parametrize("is_coalesced", [True, False])
def test_sparse_tensors_come_back_unchanged(is_coalesced: bool) -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[4, 1, 4]]), torch.rand(3, 2), (6, 2), check_invariants=True)
    sparse = sparse.coalesce() if is_coalesced else sparse
    (found,) = from_bytes(to_bytes([sparse]))
    assert found.is_coalesced() == is_coalesced
    assert torch.equal(found._indices(), sparse._indices())
    assert torch.equal(found._values(), sparse._values())
