"""Long series: what is shown of them keeps every extreme, whatever was reported in which order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.client.models import MetricPoint, Report
from trek.control.metrics.downsampling import chosen_points, joined, stretch_of_rows
from trek.control.tables import MetricBlockTable, MetricTable

MakePlane = Callable[..., Any]
VALUES = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=300)


@given(values=VALUES, max_points=st.integers(4, 50), block=st.integers(1, 20))
def test_what_is_shown_has_first_last_and_both_extremes_and_no_more_than_asked(
    values: list[float | None], max_points: int, block: int
) -> None:
    rows = [stretch_of_rows([(at, {"loss": value})]) for at, value in enumerate(values)]
    blocks = [joined(rows[start : start + block]) for start in range(0, len(rows), block)]
    shown = chosen_points(blocks, max_points=max_points)
    assert shown[0] == 0
    assert shown[-1] == len(values) - 1
    assert len(shown) <= max_points
    numbers = [value for value in values if value is not None]
    if numbers:
        assert {min(numbers), max(numbers)} <= {values[at] for at in shown}


@given(values=VALUES)
def test_rows_at_once_are_as_rows_joined_one_by_one(values: list[float | None]) -> None:
    rows = [(at, {"loss": value, "gain": 1.0}) for at, value in enumerate(values)]
    assert stretch_of_rows(rows) == joined([stretch_of_rows([row]) for row in rows])


def test_every_metric_keeps_its_own_extremes() -> None:
    rows = [stretch_of_rows([(at, {"loss": -at % 7, "accuracy": at % 11})]) for at in range(1000)]
    rows[500] = stretch_of_rows([(500, {"loss": 99.0, "accuracy": 0.0})])
    rows[700] = stretch_of_rows([(700, {"loss": 0.0, "accuracy": 99.0})])
    assert {500, 700} <= set(chosen_points(rows, max_points=20))


@pytest.fixture
def plane(make_plane: MakePlane) -> Any:
    """A plane with trial 1 running."""
    made = make_plane("time.sleep(600)")
    made.create()
    made.run_until(lambda: made.supervisor.running)
    return made


def _report(plane: Any, values: dict[int, float], *, size: int = 700) -> None:
    points = [
        MetricPoint(group="training", batches=at, metrics={"loss": value}, time_s=0.0) for at, value in values.items()
    ]
    for start in range(0, len(points), size):
        plane.services.trials.report(1, Report(run=1, metrics=points[start : start + size]))


def _shown(plane: Any, max_points: int) -> dict[int, float]:
    return {point.batches: point.metrics["loss"] for point in plane.services.trials.metrics(1, max_points=max_points)}


def test_a_long_series_is_shown_with_its_spikes_and_a_short_one_whole(plane: Any) -> None:
    rng = random.Random(0)
    values = {at: rng.random() for at in range(9000)} | {4321: 50.0, 6789: -50.0}
    _report(plane, values)
    shown = _shown(plane, 100)
    assert len(shown) <= 100
    assert shown.items() <= values.items()
    assert {0, 4321, 6789, 8999} <= shown.keys()
    assert _shown(plane, 9000) == values
    with plane.store.reading() as session:
        assert session.query(MetricBlockTable).where(MetricBlockTable.level == 1).count() >= 9000 // 256 - 8


def test_a_part_that_is_reported_again_is_shown_as_it_is_now(plane: Any) -> None:
    values = {at: float(at % 10) for at in range(5000)} | {3000: 99.0}
    _report(plane, values)
    again = {at: float(at % 10) for at in range(2500, 5000)} | {4000: -99.0}
    _report(plane, again)
    shown = _shown(plane, 50)
    assert shown.items() <= (values | again).items()
    assert min(shown.values()) == -99.0
    assert max(shown.values()) == 9.0


def test_blocks_say_what_the_rows_say(plane: Any) -> None:
    rng = random.Random(1)
    for first in (0, 3000, 1500, 4000, 10):
        _report(plane, {first + at: rng.random() for at in range(2500)}, size=rng.randrange(100, 900))
    with plane.store.reading() as session:
        blocks = session.query(MetricBlockTable).all()
        assert blocks
        for block in blocks:
            rows = session.query(MetricTable).where(MetricTable.batches.between(block.first, block.last)).all()
            values = [row.metrics["loss"] for row in rows]
            assert (block.num_rows, block.extremes["loss"][::2]) == (len(rows), [min(values), max(values)])
