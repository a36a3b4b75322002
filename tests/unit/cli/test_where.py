"""The language of --where and --sort."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.cli.where import check_names, names_in, parse_where, sort_rows
from trek.errors import InputError

ROW: dict[str, Any] = {
    "id": 7,
    "name": "mnist const",
    "state": "completed",
    "metric": "error",
    "best_metric": 0.25,
    "hyperparameters": {"lr": 0.01, "net": {"depth": 3}},
    "labels": ["good"],
    "parent": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state=completed", True),
        ("state == running", False),
        ("state!=running", True),
        ("hparams.lr<0.1 and state=completed", True),
        ("hparams.lr<0.1 and not state=completed", False),
        ("hyperparameters.net.depth >= 3", True),
        ("metric<0.3", True),
        ("id=7", True),
        ("id=8 or id=7", True),
        ("id=8 or (id=7 and metric>1)", False),
        ("name ~ MNIST", True),
        ("name = 'mnist const'", True),
        ('name = "mnist"', False),
        ("labels ~ goo", True),
        ("labels = good", True),
        ("labels = goo", False),
        ("labels != good", False),
        ("parent = none", True),
        ("parent > 3", False),
        ("nothing.of.this > 3", False),
        ("not nothing > 3", True),
        ("state > 3", False),
        ("NOT id=8 AND id=7", True),
    ],
)
def test_what_matches(text: str, expected: bool) -> None:
    assert parse_where(text)(ROW) is expected


@pytest.mark.parametrize(
    "text", ["", "state", "state=", "state=a b=c", "(state=a", "state=a)", "state ? a", "=", "and", "labels=(", "a=)"]
)
def test_what_cannot_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="--where"):
        parse_where(text)


@given(st.text(max_size=30))
def test_any_text_is_a_test_or_one_sentence(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse_where(text)(ROW) in (True, False)


def test_rows_sort_either_way_with_those_that_lack_the_key_last() -> None:
    rows = [{"id": 1, "best_metric": 3.0}, {"id": 2, "best_metric": None}, {"id": 3, "best_metric": 1.0}]
    assert [row["id"] for row in sort_rows(rows, "metric", get=lambda row: row)] == [3, 1, 2]
    assert [row["id"] for row in sort_rows(rows, "-best_metric", get=lambda row: row)] == [1, 3, 2]


def test_values_of_different_kinds_are_not_sorted() -> None:
    with pytest.raises(InputError, match="different types"):
        sort_rows([{"x": 1}, {"x": "a"}], "x", get=lambda row: row)


def test_an_experiments_hparams_are_its_best_trials() -> None:
    searched = {"hyperparameters": {"lr": {"type": "log"}, "depth": 2}, "best_hparams": {"lr": 0.01, "depth": 2}}
    assert parse_where("hparams.lr<0.1 and hparams.depth=2")(searched)
    assert not parse_where("hparams.lr<0.1")({**searched, "best_hparams": {}}), "nothing is known of it yet"
    assert sort_rows([{"hparams": {"lr": 2}}, {"hparams": {"lr": 1}}], "hparams.lr", get=dict)[0] == {
        "hparams": {"lr": 1}
    }


@pytest.mark.parametrize(
    ("text", "remedy"), [("stat=completed", "'state'"), ("id=7 or zzz=1", "Known keys: best_metric, hparams")]
)
def test_a_name_that_no_row_can_have_is_refused(text: str, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        check_names(names_in(text), [ROW])


def test_nested_names_may_be_missing_and_of_no_rows_nothing_is_known() -> None:
    check_names(names_in("hparams.momentum<1 and metric<3"), [ROW])
    check_names(names_in("anything=1"), [])


@pytest.mark.parametrize(
    "text",
    ["(" * 5000 + "a=1" + ")" * 5000, "not " * 2400 + "a=1", "(" * 65 + "a=1" + ")" * 65, "a=1 and " * 5000 + "a=1"],
)
def test_an_expression_without_end_is_one_short_error(text: str) -> None:
    # Five thousand parentheses ended in a RecursionError.
    with pytest.raises(InputError, match=r"invalid --where .*it must (be nested|have) at most") as raised:
        parse_where(text)
    assert len(str(raised.value)) < 400


def test_an_expression_that_is_nested_as_deep_as_allowed_works() -> None:
    assert parse_where("(" * 64 + "a=1" + ")" * 64)({"a": 1})
