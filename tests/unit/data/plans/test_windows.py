"""Windows by count and time, tumbling and sliding, over tables and streams."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import count, islice
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.data import Table
from trek.errors import InputError

many = settings(deadline=None, max_examples=60)


def stream_of(values: np.ndarray, sizes: list[int]) -> Iterator[dict[str, np.ndarray]]:
    start = 0
    for size in sizes:
        if len(values[start : start + size]):
            yield {"x": values[start : start + size]}
        start += size
    if start < len(values):
        yield {"x": values[start:]}


@many
@given(
    num_rows=st.integers(1, 40),
    size=st.integers(1, 8),
    step=st.integers(1, 10),
    keeps=st.booleans(),
    sizes=st.lists(st.integers(1, 7), max_size=8),
)
def test_count_windows_are_slices(num_rows: int, size: int, step: int, keeps: bool, sizes: list[int]) -> None:
    values = np.arange(num_rows) * 3
    table = Table.stream(stream_of(values, sizes))
    got = table.window(size, step=step, tail="keep" if keeps else "drop").rows()
    expected = [
        (begin, value)
        for begin in range(0, num_rows, step)
        if keeps or begin + size <= num_rows
        for value in values[begin : begin + size]
    ]
    found = [(r["window"], r["x"]) for batch in got for r in batch.to_pylist()]
    assert found == expected


@many
@given(
    times=st.lists(st.integers(-20, 60), min_size=1, max_size=30).map(sorted),
    size=st.integers(1, 12),
    step=st.integers(1, 12),
    sizes=st.lists(st.integers(1, 7), max_size=8),
)
def test_time_windows_hold_the_times_of_their_span(times: list[int], size: int, step: int, sizes: list[int]) -> None:
    values = np.array(times)
    got = Table.stream(stream_of(values, sizes)).window(size, step=step, by="x").rows()
    lowest, highest = (times[0] - size) // step - 1, times[-1] // step + 1
    expected = [(k * step, t) for k in range(lowest, highest + 1) for t in times if k * step <= t < k * step + size]
    found = [(r["window"], r["x"]) for batch in got for r in batch.to_pylist()]
    assert found == expected


def test_tumbling_windows_by_timestamp_are_pandas_resample() -> None:
    start = datetime(2024, 5, 1, 10, 0)
    times = [start + timedelta(seconds=s) for s in (0, 20, 59, 60, 61, 200)]
    frame = pd.DataFrame({"t": times, "v": [1, 2, 3, 4, 5, 6]})
    got = Table.of(frame).window(timedelta(minutes=1), by="t").reduce({"v": "sum"}).to_pandas()
    expected = frame.set_index("t")["v"].resample("1min").sum()
    expected = expected[expected > 0]
    assert got["v"].tolist() == expected.tolist()
    assert pd.to_datetime(got["window"]).tolist() == expected.index.tolist()


def test_reduce_gives_one_row_for_each_window() -> None:
    got = Table.of({"x": np.arange(10)}).window(4).reduce({"x": "sum", "n": ("*", "count")}).to_numpy()
    assert got["window"].tolist() == [0, 4, 8]
    assert got["x"].tolist() == [6, 22, 17]
    assert got["n"].tolist() == [4, 4, 2]


def test_map_sees_the_rows_of_a_window() -> None:
    def spread(rows: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"window": rows["window"][:1], "spread": [np.ptp(rows["x"])]}

    got = Table.of({"x": np.array([1, 5, 2, 2])}).window(2, step=1, tail="drop").map(spread).to_numpy()
    assert got["spread"].tolist() == [4, 3, 0]


def test_windows_of_an_endless_stream_come_as_they_close() -> None:
    def ticks() -> Iterator[dict[str, np.ndarray]]:
        for number in count():
            yield {"x": np.array([number])}

    windows = Table.stream(ticks()).map(lambda batch: {"x": batch["x"] * 2}).window(3).reduce({"x": "sum"})
    sums = [batch.to_pylist()[0]["x"] for batch in islice(windows, 3)]
    assert sums == [6, 24, 42]


def test_windows_run_within_a_partition() -> None:
    got = Table.of({"x": np.arange(6)}, num_partitions=2).window(2).reduce({"x": "sum"}).to_numpy()
    assert got["x"].tolist() == [1, 2, 7, 5]


def test_times_that_go_back_are_refused() -> None:
    with pytest.raises(InputError, match="must not decrease"):
        Table.of({"x": [1, 3, 2]}).window(2, by="x").rows().to_arrow()


def test_a_window_over_timestamps_wants_a_timedelta() -> None:
    table = Table.of(pd.DataFrame({"t": [datetime(2024, 1, 1)]}))
    with pytest.raises(InputError, match="timedelta"):
        table.window(60, by="t")


def test_a_stream_is_read_once() -> None:
    stream = Table.stream(iter([{"x": [1]}]))
    assert stream.columns == ["x"]
    assert stream.to_numpy()["x"].tolist() == [1]
    with pytest.raises(InputError, match="read only once"):
        stream.to_numpy()


def test_a_function_makes_the_rows_of_each_partition() -> None:
    def make(context: Any) -> Iterator[dict[str, Any]]:
        for number in range(2):
            yield {"partition": context.index, "number": number}

    table = Table.generate(make, num_partitions=3, rows=True)
    assert table.num_partitions == 3
    assert table.to_numpy()["partition"].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_source_with_has_next_and_next_is_read() -> None:
    class Counting:
        def __init__(self, index: int) -> None:
            self.left = 3
            self.index = index

        def has_next(self) -> bool:
            return self.left > 0

        def next(self) -> dict[str, Any]:
            self.left -= 1
            return {"x": np.array([self.index * 10 + self.left])}

    table = Table.generate(lambda context: Counting(context.index), num_partitions=2)
    assert table.to_numpy()["x"].tolist() == [2, 1, 0, 12, 11, 10]


def test_windows_by_date_span_whole_days() -> None:
    days = [date(2024, 1, day) for day in (1, 2, 3, 6)]
    table = Table.of({"day": days, "v": [1, 2, 4, 8]})
    found = table.window(timedelta(days=2), by="day").reduce({"v": "sum"}).to_arrow().to_pylist()
    assert [(row["window"], row["v"]) for row in found] == [
        (date(2023, 12, 31), 1),
        (date(2024, 1, 2), 6),
        (date(2024, 1, 6), 8),
    ]
    with pytest.raises(InputError, match="a timedelta of whole days"):
        table.window(timedelta(hours=36), by="day")


@many
@given(
    times=st.lists(st.integers(-20, 60), min_size=1, max_size=30).map(sorted),
    size=st.integers(1, 40),
    step=st.integers(1, 12),
    sizes=st.lists(st.integers(0, 7), max_size=8),
)
def test_reduced_windows_come_in_order_once_each(times: list[int], size: int, step: int, sizes: list[int]) -> None:
    """Windows that closed together came in the order of a hash table; an empty batch was an IndexError."""
    batches = [{"x": np.empty(0, np.int64)}, *stream_of(np.array(times), [max(1, size) for size in sizes])]
    got = Table.stream(batches).window(size, step=step, by="x").reduce({"n": ("*", "count")})
    found = [(row["window"], row["n"]) for batch in got for row in batch.to_pylist()]
    begins = range((times[0] - size) // step * step, times[-1] + 1, step)
    counts = [(begin, sum(begin <= t < begin + size for t in times)) for begin in begins]
    assert found == [pair for pair in counts if pair[1]]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint64, np.int32, np.float16, np.float32])
def test_windows_may_begin_before_what_narrow_numbers_hold(kind: Any) -> None:
    """A window of unsigned times that begins below zero was an error of Arrow."""
    got = Table.of({"t": np.array([1, 2, 100], kind)}).window(7, step=3, by="t").reduce({"t": "count"})
    assert got.to_numpy()["window"].tolist() == [-3, 0, 96, 99]


@pytest.mark.parametrize("time", [float("nan"), float("inf"), None])
def test_times_that_are_no_times_are_refused(time: Any) -> None:
    """A NaN was put into a window."""
    with pytest.raises(InputError, match="must not be missing, NaN or infinite"):
        Table.of({"t": [1.0, time, 3.0]}).window(1, by="t").rows().to_arrow()


def test_a_fraction_of_integers_is_refused() -> None:
    """It was an error of Arrow when the first window closed."""
    with pytest.raises(InputError, match=r"a whole number of at least 1, got 1\.5"):
        Table.of({"t": [1, 2, 3]}).window(1.5, by="t")
