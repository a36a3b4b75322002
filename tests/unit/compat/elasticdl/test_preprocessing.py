"""ElasticDL's preprocessing layers: by the examples of their documentation, and beside plain NumPy on any values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trek.compat.elasticdl import preprocessing as layers
from trek.errors import DataUnavailable, InputError

numbers = arrays.arrays(np.float64, arrays.array_shapes(max_dims=2, max_side=6), elements=st.floats(-1e4, 1e4))
any_numbers = arrays.arrays(np.float64, st.integers(1, 8), elements=st.floats())
ids = arrays.arrays(np.int64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(-1, 6))
words = arrays.arrays(object, st.integers(1, 8), elements=st.sampled_from(["A", "B", "C", "D", "", "ä", "E"]))


def column(*values: object) -> np.ndarray:
    return np.array([[value] for value in values])


def test_examples() -> None:
    lookup = layers.IndexLookup(vocabulary=["A", "B", "C"])
    assert lookup(column("A", "B", "C", "D", "E")).flatten().tolist() == [0, 1, 2, 3, 3]
    assert lookup.vocab_size() == 4
    bins = layers.Discretization(bins=[0.0, 1.0, 2.0])
    assert bins(torch.tensor([[-1.5], [1.0], [3.4], [0.5]])).flatten().tolist() == [0, 2, 3, 1]
    assert bins.num_bins() == 4
    assert layers.LogRound(16, base=2)(torch.tensor([1.2, 1.6, 0.2, 3.1, 100])).tolist() == [0, 1, 0, 2, 7]
    assert layers.RoundIdentity(5)(torch.tensor([1.2, 1.6, 0.2, 3.1, 4.9])).tolist() == [1, 2, 0, 3, 0]
    assert layers.Normalizer(1.0, 2.0)(torch.tensor([3.0, 5.0, 7.0])).tolist() == [1.0, 2.0, 3.0]
    to_number = layers.ToNumber(torch.float32, default_value=-1.0)
    assert to_number(column("123.0", "", "4")).tolist() == [[123.0], [-1.0], [4.0]]
    joined = layers.ConcatenateWithOffset(offsets=[0, 10], axis=1)
    assert joined([torch.ones(3, 1), torch.full((3, 1), 2)]).tolist() == [[1, 12]] * 3


@given(values=numbers)
def test_bins_are_those_of_numpy(values: np.ndarray) -> None:
    bounds = [-3.0, 0.0, 0.5, 100.0]
    assert np.array_equal(layers.Discretization(bounds)(values), np.digitize(values, bounds))
    assert np.array_equal(layers.Discretization(bounds)(torch.from_numpy(values)), np.digitize(values, bounds))


@given(values=any_numbers, num_ids=st.integers(1, 9), default=st.integers(-1, 3), base=st.sampled_from([None, 2, 10]))
def test_rounded_numbers_and_logarithms_are_those_of_numpy(
    values: np.ndarray, num_ids: int, default: int, base: float | None
) -> None:
    with np.errstate(all="ignore"):
        logs = np.log(values) / np.log(base or np.e)
        expected = [[_id(x, num_ids, default) for x in one] for one in (np.rint(logs), np.rint(values))]
    assert layers.LogRound(num_ids, default, base)(values).tolist() == expected[0]
    assert layers.RoundIdentity(num_ids, default)(values).tolist() == expected[1]


def _id(rounded: float, num_ids: int, default: int) -> int:
    return int(rounded) if 0 <= rounded < num_ids else default


@given(values=numbers, shift=st.floats(-10, 10), divisor=st.floats(0.1, 10))
def test_normalised_numbers_are_those_of_numpy(values: np.ndarray, shift: float, divisor: float) -> None:
    assert np.array_equal(layers.Normalizer(shift, divisor)(values), ((values - shift) / divisor).astype(np.float32))


@given(values=words, num_oov=st.integers(0, 4))
def test_words_are_looked_up_as_in_a_list(values: np.ndarray, num_oov: int) -> None:
    vocabulary = ["C", "A", "B"]
    lookup = layers.IndexLookup(vocabulary, num_oov_tokens=num_oov)
    found = lookup(values).tolist()
    for word, place in zip(values.tolist(), found, strict=True):
        if word in vocabulary:
            assert place == vocabulary.index(word)
        else:
            assert place == -1 if num_oov == 0 else 3 <= place < lookup.vocab_size()
    assert lookup(values[::-1]).tolist() == found[::-1], "by the word alone"


@given(values=words, num_bins=st.integers(1, 5))
def test_a_hash_depends_on_the_word_alone(values: np.ndarray, num_bins: int) -> None:
    hashing = layers.Hashing(num_bins)
    found = hashing(values).tolist()
    assert all(0 <= one < num_bins for one in found)
    assert [int(hashing(np.array([word], object))) for word in values] == found


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_texts_of_whole_numbers_keep_every_digit(values: list[int]) -> None:
    """They were read as float32."""
    texts = np.array([str(value) for value in values], object)
    assert layers.ToNumber(torch.int64, 0)(texts).tolist() == values


@given(values=st.lists(st.floats(allow_nan=False), min_size=1))
def test_texts_of_numbers_keep_every_digit(values: list[float]) -> None:
    texts = np.array([repr(value) for value in values], object)
    assert layers.ToNumber(torch.float64, 0)(texts).tolist() == values


@settings(max_examples=30)
@given(values=ids)
def test_sparse_values_are_turned_and_stay_where_they_are(values: np.ndarray) -> None:
    dense = torch.from_numpy(values)
    sparse = layers.ToSparse()(dense)
    assert torch.equal(layers.ToSparse()(sparse).to_dense(), sparse.to_dense())
    turned = layers.Normalizer(-10.0, 2.0)(sparse)  # never 0, so that what is there can be told from what is not
    assert torch.equal(turned.to_dense(), torch.where(dense == -1, 0.0, (dense + 10) / 2))
    joined = layers.ConcatenateWithOffset([1, 20], axis=1)([sparse, sparse]).to_dense()
    expected = torch.cat([torch.where(dense == -1, 0, dense + offset) for offset in (1, 20)], dim=1)
    assert torch.equal(joined, expected)


@settings(max_examples=30)
@given(values=ids, combiner=st.sampled_from(["sum", "mean", "sqrtn"]))
def test_embeddings_are_combined_as_by_hand(values: np.ndarray, combiner: str) -> None:
    embedding = layers.SparseEmbedding(7, 3, combiner=combiner)
    table, divide = embedding.embedding.weight, {"sum": lambda n: 1.0, "mean": lambda n: n, "sqrtn": lambda n: n**0.5}
    assert table.abs().max() <= 0.05
    expected = []
    for row in values:
        own = [one for one in row.tolist() if one != -1]
        expected.append(table[own].sum(0) / divide[combiner](max(len(own), 1)))
    torch.testing.assert_close(embedding(layers.ToSparse()(torch.from_numpy(values))), torch.stack(expected))


def test_a_vocabulary_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("A\nB \n")
    assert layers.IndexLookup(str(tmp_path / "words.txt"))(np.array(["B", "C"])).tolist() == [1, 2]
    with pytest.raises(DataUnavailable, match=r"no-words\.txt cannot be read"):
        layers.IndexLookup(str(tmp_path / "no-words.txt"))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: layers.IndexLookup(["a"], num_oov_tokens=-1), "num_oov_tokens must be at least 0"),
        (lambda: layers.IndexLookup(["a", "a"]), "more than once"),
        (lambda: layers.Normalizer(0.0, 0.0), "divisor must not be 0"),
        (lambda: layers.ToNumber(torch.float32, 0.0)(["x"]), "expects texts of numbers"),
        (lambda: layers.ToNumber(torch.int8, 0)([str(2**70)]), "expects texts of numbers of torch.int8"),
        (lambda: layers.ToNumber(float, 0.0), "out_type must be a torch.dtype"),
        (lambda: layers.LogRound(0), "num_bins >= 1"),
        (lambda: layers.Discretization([3.0, 1.0]), "increasing numbers"),
        (lambda: layers.ConcatenateWithOffset([0])([]), "expected 1 features"),
        (lambda: layers.ConcatenateWithOffset([0, 1])([torch.ones(1), torch.ones(1).to_sparse()]), "all dense or all"),
        (lambda: layers.SparseEmbedding(2, 2)(torch.ones(1, 1)), "Put ToSparse before it"),
        (lambda: layers.SparseEmbedding(2, 2, "he"), "embeddings_initializer must be one of"),
        (lambda: layers.SparseEmbedding(2, 2, combiner="max"), "'sum', 'mean' or 'sqrtn'"),
    ],
)
def test_mistakes_are_named(act: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        act()
