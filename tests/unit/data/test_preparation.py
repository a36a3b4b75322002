"""Preparation layers: learnt from a Table, the same in a Table and in a model, saved with it."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import trek.data.preparation.bucketise
from trek.data import Table
from trek.data.preparation import (
    Bucketise,
    ConcatenateWithOffsets,
    Hash,
    Lookup,
    Normalise,
    Preparation,
    ToSparse,
)
from trek.errors import InputError
from trek.fingerprints import fingerprint


@settings(deadline=None, max_examples=40)
@given(numbers=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), parts=st.integers(1, 4))
def test_normalise_learns_mean_and_deviation_over_all_partitions(numbers: list[float], parts: int) -> None:
    values = np.array(numbers)
    layer = Normalise().fit(Table.of({"x": values}, num_partitions=parts), "x")
    assert float(layer.mean) == pytest.approx(values.mean(), rel=1e-9, abs=1e-6)
    if values.std() > 1e-3:
        assert float(layer.deviation) == pytest.approx(values.std(), rel=1e-6)


def test_normalise_keeps_the_digits_of_numbers_far_from_zero() -> None:
    values = 1e9 + np.array([0.0, 1.0, 2.0, 3.0])
    layer = Normalise().fit(Table.of({"x": values}, num_partitions=2), "x")
    assert float(layer.deviation) == pytest.approx(values.std())


@settings(deadline=None, max_examples=40)
@given(
    centre=st.sampled_from([0.0, 1e9, 1.7e9, -3e12]),
    spread=st.sampled_from([1e-3, 1.0, 3600.0]),
    seed=st.integers(0, 99),
)
def test_normalise_is_exact_to_float32_wherever_the_numbers_lie(centre: float, spread: float, seed: int) -> None:
    """Numbers were rounded to float32 before the mean was subtracted: of 3,386 seconds of an hour 29 were left."""
    values = centre + spread * np.random.default_rng(seed).normal(size=500)
    ready = Normalise().fit(Table.of({"x": values}, num_partitions=3), "x")(values)
    wanted = (values - values.mean()) / values.std()
    assert ready.dtype == torch.float32
    np.testing.assert_allclose(ready.numpy(), wanted, atol=1e-5 + 1e-12 * abs(centre) / spread)
    assert len(np.unique(ready)) >= 0.98 * len(np.unique(values))


@given(value=st.floats(-1e12, 1e12), count=st.integers(1, 50))
def test_a_constant_column_becomes_0(value: float, count: int) -> None:
    """The mean of equal numbers may be off by a rounding, which was then divided by itself."""
    values = np.full(count, value)
    assert Normalise().fit(Table.of({"x": values}), "x")(values).tolist() == [0.0] * count


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16, nn.Module.float])
def test_what_was_learnt_keeps_its_digits_when_a_model_is_converted(convert: Any) -> None:
    """model.half() rounded the mean of a column."""
    values = 1.7e9 + np.arange(3600.0)
    table = Table.of({"x": values})
    layers = nn.ModuleList([Normalise().fit(table, "x"), Bucketise(num_buckets=60).fit(table, "x")])
    before = [layer(values) for layer in layers]
    convert(layers)
    assert all(torch.equal(layer(values), old) for layer, old in zip(layers, before, strict=True))


def test_normalise_works_column_by_column_and_fills_gaps_with_the_mean() -> None:
    table = Table.of({"a": [1.0, 3.0, None], "b": [5.0, 5.0, 5.0]})
    layer = Normalise().fit(table, "a", "b")
    ready = layer(np.array([[1.0, 5.0], [np.nan, 5.0]]))
    assert ready.tolist() == [[-1.0, 0.0], [0.0, 0.0]]


def test_bucketise_learns_buckets_that_are_equally_full() -> None:
    layer = Bucketise(num_buckets=4).fit(Table.of({"x": np.arange(1000)}), "x")
    counts = torch.bincount(layer(np.arange(1000)), minlength=layer.num_ids)
    assert counts.tolist() == [0, 250, 250, 250, 250]


def test_bucketise_keeps_the_digits_of_numbers_far_from_zero() -> None:
    """Boundaries and numbers were rounded to float32."""
    assert Bucketise([16777217.0])(np.array([16777216.0, 16777217.0])).tolist() == [1, 2]
    seconds = 1.7e9 + np.arange(3600.0)
    ids = Bucketise(num_buckets=60).fit(Table.of({"t": seconds}), "t")(torch.tensor(seconds))
    assert torch.bincount(ids).tolist() == [0, *[60] * 60]


def test_bucketise_learns_from_a_fair_sample_of_many_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample was sorted out again for every batch, which took most of the time."""
    monkeypatch.setattr(trek.data.preparation.bucketise, "_SAMPLE", 2000)
    values = np.random.default_rng(0).permutation(50_000).astype(float)
    layer = Bucketise(num_buckets=4).fit(Table.of({"x": values}, num_partitions=7), "x")
    np.testing.assert_allclose(layer.boundaries, [12500, 25000, 37500], atol=2500)
    again = Bucketise(num_buckets=4).fit(Table.of({"x": values}, num_partitions=7), "x")
    assert torch.equal(layer.boundaries, again.boundaries)


def test_bucketise_with_given_boundaries_puts_missing_into_bucket_0() -> None:
    layer = Bucketise([10, 20])
    assert layer(torch.tensor([5.0, 10.0, 19.0, 20.0, float("nan")])).tolist() == [1, 2, 2, 3, 0]
    assert layer.num_ids == 4


def test_hash_is_the_same_for_arrays_and_tensors_and_stays_in_range() -> None:
    layer = Hash(7)
    numbers = np.arange(1000)
    assert layer(numbers).tolist() == layer(torch.arange(1000)).tolist()
    assert set(layer(numbers).tolist()) == set(range(7))


def test_hash_of_texts_is_fixed_for_all_time() -> None:
    assert Hash(1000)(np.array(["a", "b", None, "ä"], dtype=object)).tolist() == [504, 975, 485, 998]


def test_lookup_learns_the_most_frequent_words() -> None:
    table = Table.of({"s": ["b", "a", "b", None, "c", "c", "b"]}, num_partitions=2)
    layer = Lookup(max_size=2).fit(table, "s")
    assert layer.vocabulary == ["b", "c"]
    assert layer(np.array(["a", "b", "c", None], dtype=object)).tolist() == [0, 1, 2, 0]
    assert layer.num_ids == 3


def test_lookup_follows_its_vocabulary_and_travels_without_its_index() -> None:
    """The index was built again for every batch; now it is kept, and made anew for another vocabulary."""
    layer = Lookup(["a", "b"])
    before = fingerprint(layer)
    assert layer(np.array(["b"], dtype=object)).tolist() == [2]
    assert fingerprint(layer) == before
    layer.vocabulary = ["b", "c"]
    assert layer(np.array(["b"], dtype=object)).tolist() == [1]
    assert pickle.loads(pickle.dumps(layer))(np.array(["c"], dtype=object)).tolist() == [2]


def test_lookup_takes_integers_with_gaps() -> None:
    layer = Lookup().fit(Table.of({"x": [7, None, 7, 3]}), "x")
    assert layer(np.array([3.0, 7.0, np.nan])).tolist() == [2, 1, 0]
    assert layer(torch.tensor([3, 7, 9])).tolist() == [2, 1, 0]


def test_concatenating_gives_each_feature_its_own_ids() -> None:
    layer = ConcatenateWithOffsets([3, 4, 5])
    ids = layer([torch.tensor([0, 2]), torch.tensor([[0], [3]]), torch.tensor([[0, 4], [1, 1]])])
    assert ids.tolist() == [[0, 3, 7, 11], [2, 6, 8, 8]]
    assert layer.num_ids == 12


def test_sparse_leaves_the_padding_out() -> None:
    ids = torch.tensor([[1, -1, 2], [-1, -1, -1], [0, 3, -1]])
    sparse = ToSparse()(ids)
    assert sparse.values().tolist() == [1, 2, 0, 3]
    assert sparse.shape == (3, 3)
    values, offsets = ToSparse().to_bags(ids)
    assert (values.tolist(), offsets.tolist()) == ([1, 2, 0, 3], [0, 2, 2])


@pytest.fixture
def people() -> Table:
    return Table.of(
        {
            "age": [20, 30, 40, 50],
            "hours": [10.0, 20.0, None, 40.0],
            "job": ["a", "b", "a", None],
            "label": [0, 1, 0, 1],
        },
        num_partitions=2,
    )


def make_preparation() -> Preparation:
    return Preparation(
        {
            "numbers": (Normalise(), ["age", "hours"]),
            "job": (Lookup(), "job"),
            "age_bucket": (Bucketise(num_buckets=2), "age"),
            "label": "label",
        }
    )


def test_a_preparation_is_fitted_in_one_pass_and_applied_in_a_table(people: Table) -> None:
    ready = people.map(make_preparation().fit(people)).to_torch()
    assert ready["numbers"].shape == (4, 2)
    assert ready["job"].tolist() == [1, 2, 1, 0]
    assert ready["age_bucket"].tolist() == [1, 1, 2, 2]
    assert ready["label"].tolist() == [0, 1, 0, 1]


def test_a_preparation_is_saved_with_its_model_and_loads_without_being_fitted(people: Table) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prepare = make_preparation()
            self.linear = nn.Linear(2, 1)

        def forward(self, columns: dict[str, Any]) -> torch.Tensor:
            return self.linear(self.prepare(columns)["numbers"])

    model = Model()
    model.prepare.fit(people)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    other = Model()
    other.load_state_dict(torch.load(stream, weights_only=True))
    columns = people.to_numpy()
    assert torch.equal(model(columns), other(columns))
    assert other.prepare.num_ids("job") == 3


def test_the_same_features_come_from_arrays_and_tensors(people: Table) -> None:
    prepare = Preparation({"age": (Normalise(), "age"), "bucket": (Bucketise(num_buckets=2), "age")}).fit(people)
    from_arrays, from_tensors = prepare(people.to_numpy()), prepare({"age": people.select("age").to_torch()["age"]})
    assert torch.equal(from_arrays["age"], from_tensors["age"])
    assert torch.equal(from_arrays["bucket"], from_tensors["bucket"])


def test_what_was_learnt_counts_for_whether_a_persisted_table_is_stale(people: Table, tmp_path: Path) -> None:
    first = people.map(Preparation({"age": (Normalise(), "age")}).fit(people)).persist(tmp_path / "ready")
    older = people.map(lambda batch: {**batch, "age": batch["age"] + 10})
    second = people.map(Preparation({"age": (Normalise(), "age")}).fit(older)).persist(tmp_path / "ready")
    assert first.fingerprint() != second.fingerprint()
    assert second.to_numpy()["age"].mean() < -0.5


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Normalise()(np.zeros(2)), "Normalise has not been fitted"),
        (lambda: Lookup()(np.array(["a"])), "Lookup has not been fitted"),
        (lambda: Bucketise([3, 1]), "must be one or more increasing numbers"),
        (lambda: Lookup(["a", "b", "a"]), "the vocabulary has 'a' more than once"),
        (lambda: Hash(0), "at least 1"),
        (lambda: ConcatenateWithOffsets([]), "one or more numbers of at least 1"),
        (lambda: ConcatenateWithOffsets([2])([]), "expected 1 features, one for each size, got 0"),
        (lambda: Bucketise([1])(np.array(["x"], dtype=object)), "expected numbers, got"),
        (lambda: Preparation({"a": (Normalise(), "a")}).num_ids("b"), "'b' has no layer"),
        (lambda: Normalise().num_ids, "returns numbers, not ids"),
    ],
)
def test_mistakes_are_one_error(act: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        act()


@pytest.mark.parametrize("layer", [Normalise(), Bucketise(num_buckets=2)])
def test_texts_are_no_numbers_to_learn_from(layer: Any) -> None:
    with pytest.raises(InputError, match="expected numbers, got object, such as 'a'"):
        layer.fit(Table.of({"job": ["a", "b"]}), "job")
