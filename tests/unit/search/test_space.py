"""The space: drawn within its bounds, laid out as a grid, nested, conditional."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import ConfigError
from trek.search.space import Space

NESTED: dict[str, Any] = {
    "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
    "momentum": {"type": "double", "minval": 0.0, "maxval": 1.0, "when": {"optimizer": "sgd"}},
    "model": {"layers": {"depth": {"type": "int", "minval": 1, "maxval": 3}, "width": 8}},
    "lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1},
}


def draw(raw: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    return Space(raw).sample(random.Random(seed))


@given(seed=st.integers())
def test_draws_stay_within_their_bounds(seed: int) -> None:
    point = draw(NESTED, seed)
    assert point["optimizer"] in ("sgd", "adam")
    assert ("momentum" in point) == (point["optimizer"] == "sgd")
    assert 1 <= point["model"]["layers"]["depth"] <= 3
    assert point["model"]["layers"]["width"] == 8
    assert 1e-3 <= point["lr"] <= 1e-1


def test_the_same_seed_draws_the_same_point() -> None:
    assert draw(NESTED, 4) == draw(NESTED, 4)
    assert draw(NESTED, 4) != draw(NESTED, 5)


def test_both_ends_of_an_int_are_drawn() -> None:
    raw = {"n": {"type": "int", "minval": 1, "maxval": 2}}
    assert {draw(raw, seed)["n"] for seed in range(20)} == {1, 2}


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ({"type": "const", "val": 3}, [3]),
        (7, [7]),
        ([1, 2], [[1, 2]]),
        ({"type": "int", "minval": 1, "maxval": 3}, [1, 2, 3]),
        ({"type": "int", "minval": 0, "maxval": 10, "count": 3}, [0, 5, 10]),
        ({"type": "int", "minval": 0, "maxval": 1, "count": 5}, [0, 1]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 1}, [0.5]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 5}, [0, 0.25, 0.5, 0.75, 1]),
        ({"type": "log", "minval": -2, "maxval": 0, "count": 3}, [0.01, 0.1, 1]),
        ({"type": "categorical", "vals": ["a", None]}, ["a", None]),
    ],
)
def test_grids_of_each_kind(parameter: Any, values: list[Any]) -> None:
    assert [point["x"] for point in Space({"x": parameter}).grid()] == values


def test_the_last_parameter_of_a_grid_varies_fastest() -> None:
    raw = {"a": {"type": "categorical", "vals": [1, 2]}, "b": {"type": "categorical", "vals": [3, 4]}}
    assert [tuple(p.values()) for p in Space(raw).grid()] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_points_that_a_condition_makes_equal_count_once() -> None:
    raw = {
        "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
        "momentum": {"type": "double", "minval": 0, "maxval": 1, "count": 3, "when": {"optimizer": ["sgd"]}},
    }
    assert len(Space(raw).grid()) == 4


def test_a_grid_without_a_count_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hyperparameters\.a\.b has no count"):
        Space({"a": {"b": {"type": "double", "minval": 0, "maxval": 1}}}).grid()


def test_a_condition_on_something_unknown_is_refused() -> None:
    with pytest.raises(ConfigError, match="conditional on 'later'"):
        Space({"x": {"type": "int", "minval": 0, "maxval": 1, "when": {"later": 1}}, "later": 1})


@given(seed=st.integers(), factor=st.floats(0, 1))
def test_a_changed_copy_stays_in_the_space(seed: int, factor: float) -> None:
    space = Space(NESTED)
    rng = random.Random(seed)
    point = space.perturb(space.sample(rng), rng=rng, resample_probability=0.3, factor=factor)
    assert 1e-3 <= point["lr"] <= 1e-1
    assert 1 <= point["model"]["layers"]["depth"] <= 3
    assert isinstance(point["model"]["layers"]["depth"], int)
    assert ("momentum" in point) == (point["optimizer"] == "sgd")


@pytest.mark.parametrize(
    ("bounds", "count", "expected"),
    [
        ((2, 7), 3, [2, 5, 7]),
        ((0, 3), 10, [0, 1, 2, 3]),
        ((0, 3), 1, [2]),
        ((-7, -2), 3, [-7, -5, -2]),
        ((5, 5), 4, [5]),
    ],
)
def test_a_grid_of_whole_numbers_rounds_halves_away_from_zero(
    bounds: tuple[int, int], count: int, expected: list[int]
) -> None:
    # 2 … 7 in 3 steps gave 2, 4, 7: halves were rounded to even numbers.
    low, high = bounds
    grid = Space({"a": {"type": "int", "minval": low, "maxval": high, "count": count}}).grid()
    assert [point["a"] for point in grid] == expected


@pytest.mark.parametrize(
    ("raw", "nearest"),
    [
        ({"type": "integer", "minval": 1, "maxval": 2}, "int"),
        ({"type": "integer"}, "int"),
        ({"type": "Int", "minval": 1, "maxval": 2}, "int"),
        ({"type": "loguniform", "minval": -4, "maxval": -1}, "log"),
        ({"type": "float", "minval": 0, "maxval": 1}, "double"),
        ({"type": "choice", "vals": [1, 2]}, "categorical"),
        ({"type": "categorial", "vals": [1, 2]}, "categorical"),
        ({"type": "constant", "val": 3}, "const"),
    ],
)
def test_a_misspelled_type_is_refused_with_the_nearest_one(raw: dict[str, Any], nearest: str) -> None:
    # It became a constant mapping, the same for every trial.
    with pytest.raises(
        ConfigError, match=rf"hyperparameters\.a\.b: .*Did you mean '{nearest}'\? Known types: const, int"
    ):
        Space({"a": {"b": raw}})


@pytest.mark.parametrize("kind", ["beta", 3, ["int"]])
def test_any_unknown_type_of_a_range_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="is not a type of hyperparameter"):
        Space({"a": {"type": kind, "minval": 0, "maxval": 1}})


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "adam", "lr": 0.1},
        {"type": "constant", "lr": 0.1},
        {"type": "step", "count": 3, "base": 0.5},
        {"type": {"type": "const", "val": "adam"}, "lr": 0.1},
        {"kind": "integer"},
    ],
)
def test_a_mapping_with_a_type_of_its_own_stays_a_constant(raw: dict[str, Any]) -> None:
    assert draw({"a": raw})["a"].keys() == raw.keys()


def test_const_makes_any_mapping_a_constant() -> None:
    raw = {"type": "integer", "minval": 1}
    assert draw({"a": {"type": "const", "val": raw}}) == {"a": raw}


def test_the_points_of_a_large_grid_are_made_one_by_one() -> None:
    # Every report of a trial listed all points of the grid anew: 100,000 took a second each time.
    grid = Space({f"h{i}": {"type": "int", "minval": 0, "maxval": 9} for i in range(12)}).grid()
    assert len(grid) == 10**12
    assert list(grid[123_456_789_012].values()) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_a_grid_has_every_point_once_in_order(sizes: list[int]) -> None:
    raw = {f"h{i}": {"type": "categorical", "vals": list(range(size))} for i, size in enumerate(sizes)}
    points = [tuple(point.values()) for point in Space(raw).grid()]
    assert points == list(itertools.product(*(range(size) for size in sizes)))
