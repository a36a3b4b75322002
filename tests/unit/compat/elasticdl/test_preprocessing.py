"""ElasticDL's preprocessing layers, by the examples of their documentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trek.compat.elasticdl import preprocessing as layers
from trek.errors import InputError


def column(*values: object) -> np.ndarray:
    return np.array([[value] for value in values])


def test_ids_and_numbers() -> None:
    lookup = layers.IndexLookup(vocabulary=["A", "B", "C"])
    assert lookup(column("A", "B", "C", "D", "E")).flatten().tolist() == [0, 1, 2, 3, 3]
    assert lookup.vocab_size == 4
    bins = layers.Discretization(bins=[0.0, 1.0, 2.0])
    assert bins(torch.tensor([[-1.5], [1.0], [3.4], [0.5]])).flatten().tolist() == [0, 2, 3, 1]
    assert bins.bin_size == 4
    assert layers.LogRound(16, base=2)(torch.tensor([1.2, 1.6, 0.2, 3.1, 100])).tolist() == [0, 1, 0, 2, 7]
    assert layers.LogRound(4, base=2)(torch.tensor([100.0])).tolist() == [3]
    assert layers.RoundIdentity(5)(torch.tensor([1.2, 1.6, 0.2, 3.1, 4.9])).tolist() == [1, 2, 0, 3, 0]
    assert layers.Normalizer(1.0, 2.0)(torch.tensor([3.0, 5.0, 7.0])).tolist() == [1.0, 2.0, 3.0]
    numbers = layers.ToNumber(torch.float32, default_value=-1.0)
    assert numbers(column("123.0", "", "4")).tolist() == [[123.0], [-1.0], [4.0]]
    hashed = layers.Hashing(num_bins=3)(column("A", "B", "A"))
    assert hashed[0] == hashed[2]
    assert int(hashed.max()) < 3


def test_sparse_ids_are_embedded_and_combined() -> None:
    sparse = layers.ToSparse()(torch.tensor([[0, 2], [-1, 1], [-1, -1]]))
    embedding = layers.SparseEmbedding(3, 4, combiner="mean")
    table = embedding.embedding.weight
    expected = torch.stack([(table[0] + table[2]) / 2, table[1], torch.zeros(4)])
    torch.testing.assert_close(embedding(sparse), expected)


def test_features_share_one_id_space() -> None:
    joined = layers.ConcatenateWithOffset(offsets=[0, 10, 20])
    ids = [torch.tensor([[1], [2]]), torch.tensor([[1], [2]]), torch.tensor([[1], [0]])]
    assert joined(ids).tolist() == [[1, 11, 21], [2, 12, 20]]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: layers.IndexLookup(["a"], num_oov_tokens=2), "num_oov_tokens must be 1"),
        (lambda: layers.Normalizer(0.0, 0.0), "divisor must not be 0"),
        (lambda: layers.ToNumber(torch.float32, 0.0)(["x"]), "expects texts of numbers"),
        (lambda: layers.LogRound(0), "num_bins >= 1"),
        (lambda: layers.Discretization([3.0, 1.0]), "increasing numbers"),
        (lambda: layers.ConcatenateWithOffset([0])([]), "expected 1 features"),
    ],
)
def test_mistakes_are_named(act: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        act()  # type: ignore[operator]
