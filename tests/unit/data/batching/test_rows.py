"""Rows are gathered the same from one piece of memory and from many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.data.batching.rows import Rows, ScatteredRows


@settings(deadline=None, max_examples=80)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    shape=st.sampled_from([(), (3,), (2, 5)]),
    dtype=st.sampled_from([np.uint8, np.int64, np.float32, np.bool_]),
    seed=st.integers(0, 1000),
)
def test_rows_that_lie_apart_come_as_if_they_lay_together(
    lengths: list[int], shape: tuple[int, ...], dtype: type, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    chunks = [rng.integers(0, 100, (length, *shape)).astype(dtype) for length in lengths]
    rng.shuffle(chunks)  # so that addresses do not rise with the rows
    wanted = rng.integers(0, sum(lengths), 40)
    apart = ScatteredRows(chunks)
    together = Rows([np.concatenate(chunks)])
    found = apart.gather(apart.places(wanted))
    assert found.dtype == dtype
    assert np.array_equal(found, together.gather(together.places(wanted)))


@pytest.mark.parametrize("row", [-1, 5])
def test_a_row_that_does_not_exist_is_refused_before_memory_is_read(row: int) -> None:
    rows = ScatteredRows([np.arange(2), np.arange(3)])
    with pytest.raises(IndexError, match="not all among 5 rows"):
        rows.places(np.array([0, row]))


def test_what_was_gathered_can_be_written_to_and_reaches_no_row() -> None:
    chunks = [np.arange(2), np.arange(2, 5)]
    rows = ScatteredRows(chunks)
    rows.gather(rows.places(np.array([1, 3])))[:] = 99
    assert [chunk.tolist() for chunk in chunks] == [[0, 1], [2, 3, 4]]
