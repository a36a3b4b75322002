"""Curves: many series in one answer, downsampled without losing an extreme."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from trek.control.metrics import overview
from trek.control.metrics.curve_service import CurveService
from trek.control.metrics.metric_blocks import summarise
from trek.control.metrics.overview import WHOLE, Extent, smoothed
from trek.control.store import Store
from trek.control.tables import ExperimentRow, MetricTable, TrialRow
from trek.errors import InputError, NotFound
from trek.testing.control_parts import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    yield made
    made.close()


def add_trials(store: Store, count: int) -> list[int]:
    with store.writing() as session:
        config = {"searcher": {"metric": "loss"}}
        experiment = ExperimentRow(name="e", config=config, archive="", created_s=0.0, best_trial=1)
        session.add(experiment)
        session.flush()
        trials = [
            TrialRow(experiment_id=experiment.id, key=key, hparams={}, seed=0, length=1, created_s=0.0)
            for key in range(count)
        ]
        session.add_all(trials)
        session.flush()
        return [trial.id for trial in trials]


def add_points(store: Store, trial_id: int, values: list[float | None], *, group: str = "validation") -> None:
    with store.writing() as session:
        owner = {"trial_id": trial_id, "group": group, "duration_s": 0.0}
        rows = [
            {**owner, "metrics": {"loss": value}, "batches": at, "epoch": at / 10, "time_s": float(at)}
            for at, value in enumerate(values)
        ]
        session.execute(insert(MetricTable), rows)
        while summarise(session, trial_id, group):
            pass


def test_short_series_are_whole_and_trials_without_the_metric_left_out(store: Store) -> None:
    first, second, _ = add_trials(store, 3)
    add_points(store, first, [3.0, None, 1.0])
    add_points(store, second, [5.0], group="training")
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100}
    [curve] = service.of_experiment(1, **asked)
    assert (curve.trial_id, curve.batches, curve.values, curve.epochs) == (first, [0, 1, 2], [3.0, None, 1.0], [])
    assert curve.num_undefined == 1
    [curve] = service.of_experiment(1, **asked, with_times=True)
    assert (curve.batches, curve.values, curve.epochs) == ([0, 1, 2], [3.0, None, 1.0], [0.0, 0.1, 0.2])


def test_long_series_keep_their_extremes_within_the_limit(store: Store) -> None:
    [trial] = add_trials(store, 1)
    generator = random.Random(3)
    values = [generator.random() for _ in range(5000)]
    values[1234], values[4321] = 9.0, -9.0
    add_points(store, trial, list(values))
    for with_times in (False, True):
        asked = {"group": "validation", "metric": "loss", "max_points": 200, "with_times": with_times}
        [curve] = CurveService(store).of_trials([trial], **asked)
        assert 100 < len(curve.values) <= 200
        assert {9.0, -9.0} <= set(curve.values)
        assert curve.batches == sorted(curve.batches)
        assert curve.batches[-1] == 4999
        assert [values[at] for at in curve.batches] == curve.values


def test_a_shorter_extent_is_finer_and_keeps_its_extremes(store: Store) -> None:
    [trial] = add_trials(store, 1)
    generator = random.Random(5)
    values = [generator.random() for _ in range(20_000)]
    values[10_123], values[10_999], values[15_000] = 9.0, -9.0, 99.0
    add_points(store, trial, list(values))
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100}
    for first, last in ((10_000, 13_000), (10_100, 10_200), (7_000, 19_000), (0, 19_999), (19_990, 19_999)):
        [curve] = service.of_trials([trial], **asked, extent=Extent(first, last))
        inside = [at for at in curve.batches if first <= at <= last]
        assert len(inside) >= min(last - first, 60), "finer than the whole series"
        assert len(curve.batches) <= 110
        assert [values[at] for at in curve.batches] == curve.values
        expected = values[first : last + 1]
        assert max(expected) in curve.values
        assert min(expected) in curve.values
    assert service.of_trials([trial], **asked, extent=Extent(30_000, 40_000)) == []


def test_what_was_reported_since_is_in_the_next_answer(store: Store) -> None:
    first, second = add_trials(store, 2)
    add_points(store, first, [1.0])
    add_points(store, second, [2.0])
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100}
    assert [curve.values for curve in service.of_experiment(1, **asked)] == [[1.0], [2.0]]
    with store.writing(about=[("metrics", second)]) as session:
        row = {"group": "validation", "batches": 1, "epoch": 0.0, "metrics": {"loss": 0.5}, "time_s": 0.0}
        session.add(MetricTable(trial_id=second, **row))
    assert [curve.values for curve in service.of_experiment(1, **asked)] == [[1.0], [2.0, 0.5]]


def test_an_unchanged_curve_is_not_read_again(store: Store) -> None:
    [trial] = add_trials(store, 1)
    add_points(store, trial, [1.0])
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100}
    assert service.of_trials([trial], **asked)[0].values == [1.0]
    with store.reading() as session:  # behind the store's back: a write that it does not know of
        session.execute(update(MetricTable).values(metrics={"loss": 7.0}))
        session.commit()
    assert service.of_trials([trial], **asked)[0].values == [1.0]


@pytest.mark.parametrize("num_rows", [300, 20_000])
def test_values_that_are_not_finite_are_gaps_and_are_counted(store: Store, num_rows: int) -> None:
    [trial] = add_trials(store, 1)
    gap = range(num_rows // 4, num_rows // 2)
    add_points(store, trial, [None if at in gap else float(at) for at in range(num_rows)])
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100}
    for smoothing in (0.0, 0.5):
        [curve] = service.of_trials([trial], **asked, smoothing=smoothing)
        assert curve.num_undefined == len(gap)
        assert len(curve.batches) <= 150
        shown = dict(zip(curve.batches, curve.values, strict=True))
        assert {at in gap for at, value in shown.items() if value is None} == {True}
        assert not any(at in gap for at, value in shown.items() if value is not None)
        [inside] = service.of_trials([trial], **asked, smoothing=smoothing, extent=Extent(gap[5], gap[-5]))
        assert {value for at, value in zip(inside.batches, inside.values, strict=True) if at in gap} == {None}


def test_rows_without_the_metric_are_no_gaps(store: Store) -> None:
    [trial] = add_trials(store, 1)
    with store.writing() as session:
        row = {"trial_id": trial, "group": "training", "epoch": 0.0, "time_s": 0.0}
        for batches, metrics in enumerate([{"loss": 1.0}, {"other": 5.0}, {"loss": None}, {"loss": 2.0}]):
            session.add(MetricTable(**row, batches=batches, metrics=metrics))
    [curve] = CurveService(store).of_trials([trial], group="training", metric="loss", max_points=10)
    assert (curve.batches, curve.values) == ([0, 2, 3], [1.0, None, 2.0])


@pytest.mark.parametrize("num_rows", [150, 20_000])
def test_a_smoothed_value_is_the_same_in_every_extent(store: Store, num_rows: int) -> None:
    [trial] = add_trials(store, 1)
    generator = random.Random(7)
    values = [generator.random() for _ in range(num_rows)]
    add_points(store, trial, list(values))
    expected = [value for _, value in smoothed(enumerate(values), weight=0.9)]
    assert expected[1] == pytest.approx((values[0] * 0.9 + values[1]) / 1.9)
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100, "smoothing": 0.9}
    for extent in (WHOLE, Extent(100, 120), Extent(num_rows // 2, num_rows - 1)):
        [curve] = service.of_trials([trial], **asked, extent=extent)
        assert curve.values == [expected[at] for at in curve.batches]
        assert extent.last >= curve.batches[-1] >= extent.first > 0 or extent == WHOLE


def test_more_rows_than_an_answer_may_smooth_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOST_SMOOTHED_ROWS", 10)
    [trial] = add_trials(store, 1)
    add_points(store, trial, [1.0] * 11)
    service, asked = CurveService(store), {"group": "validation", "metric": "loss", "max_points": 100, "smoothing": 0.9}
    with pytest.raises(InputError, match=r"11 rows; at most 10 .* Choose fewer trials"):
        service.of_trials([trial], **asked)
    assert service.of_trials([trial], **asked, extent=Extent(0, 9)) != []


@pytest.mark.parametrize("metric", ["a.b", 'say "x"', "$", "back\\slash", "é/ü", ""])
def test_a_metric_may_have_any_name(store: Store, metric: str) -> None:
    [trial] = add_trials(store, 1)
    with store.writing() as session:
        row = {"group": "validation", "batches": 1, "epoch": 0.0, "metrics": {metric: 2.5}, "time_s": 0.0}
        session.add(MetricTable(trial_id=trial, **row))
    [curve] = CurveService(store).of_trials([trial], group="validation", metric=metric, max_points=10)
    assert curve.values == [2.5]


def test_names_are_by_group(store: Store) -> None:
    first, second = add_trials(store, 2)
    add_points(store, first, [1.0])
    add_points(store, second, [1.0], group="training")
    found = CurveService(store).names(experiment_id=1)
    assert [(one.group, one.names) for one in found] == [("training", ["loss"]), ("validation", ["loss"])]
    with pytest.raises(NotFound):
        CurveService(store).names(experiment_id=9)


def test_a_sparkline_is_of_the_best_trial(store: Store) -> None:
    first, second = add_trials(store, 2)
    add_points(store, first, [2.0, 1.0])
    add_points(store, second, [4.0, 3.0])
    [line] = CurveService(store).sparklines([1, 77])
    assert (line.experiment_id, line.values) == (1, [2.0, 1.0])


def test_a_sparkline_skips_what_is_not_finite(store: Store) -> None:
    [trial] = add_trials(store, 1)
    add_points(store, trial, [2.0, None, 1.0])
    [line] = CurveService(store).sparklines([trial])
    assert line.values == [2.0, 1.0]
