"""Which values may enter: text that can be stored and shown, JSON of bounded depth and size."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from trek.client.wire_values import (
    MAX_DEPTH,
    MAX_ITEMS,
    JsonObject,
    Line,
    MetricName,
    Output,
    Secret,
    Text,
    clean,
    find_fault,
    printable,
    segment,
)
from trek.errors import InputError

ANY_TEXT = st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


class Everything(BaseModel):
    line: Line = ""
    text: Text = ""
    secret: Secret = ""
    output: Output = ""
    metric: MetricName = ""
    values: JsonObject = {}


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return {"x": value}


@given(field=st.sampled_from(["line", "text", "secret", "output", "metric"]), text=ANY_TEXT)
def test_whatever_is_accepted_can_be_sent_and_stored(field: str, text: str) -> None:
    try:
        made = Everything(**{field: text})
    except ValidationError:
        assert field != "output"
        return
    kept = getattr(made, field)
    assert "\0" not in kept
    assert Everything.model_validate_json(made.model_dump_json()) == made
    if field in ("line", "metric"):
        assert kept.splitlines() in ([], [kept])


@given(values=st.dictionaries(ANY_TEXT, JSON, max_size=4))
def test_json_that_is_accepted_survives_a_round_trip(values: dict[str, Any]) -> None:
    try:
        made = Everything(values=values)
    except ValidationError:
        return
    assert json.loads(json.dumps(made.values, allow_nan=False).encode()) == values
    assert Everything.model_validate_json(made.model_dump_json()) == made


@given(text=ANY_TEXT)
def test_what_is_cleaned_is_accepted(text: str) -> None:
    assert Everything(secret=clean(text), text=printable(text))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": "\ud800"}, r"the surrogate without its pair U\+D800"),
        ({"a": ["x", "\x00"]}, r"the control character U\+0000"),
        ({"a\nb": 1}, r"must not have a key with the control character U\+000A"),
        ({"k" * 1001: 1}, "keys of at most 1000 characters"),
        ({"a": 10**30}, "at most 64 bits"),
        ({"a": float("nan")}, "must be a finite number"),
        ({"a": [float("-inf")]}, "must be a finite number"),
        ({"a": "x" * 1_000_001}, "at most 1000000 characters"),
        (nested(MAX_DEPTH), f"at most {MAX_DEPTH} levels"),
        (nested(100_000), f"at most {MAX_DEPTH} levels"),
        ({"a": [0] * (MAX_ITEMS + 1)}, f"at most {MAX_ITEMS} entries"),
    ],
)
def test_each_refusal_says_where_and_why(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Everything(values=value)


def test_what_people_write_is_accepted() -> None:
    values = {"läuft 走る": ["a\nb\tc", 2**63, -1.5e300, None, True], **nested(MAX_DEPTH - 2)}
    assert find_fault(values) is None
    assert Everything(line="Zoë’s run №7 🚀", text="two\nlines").line == "Zoë’s run №7 🚀"


def test_a_value_that_shares_its_parts_is_bounded_too() -> None:
    value: Any = ["x"]
    for _ in range(40):
        value = [value] * 2
    began = time.process_time()
    fault = find_fault({"a": value})
    assert fault is not None
    assert time.process_time() - began < 30  # it has 2**40 entries


@given(name=ANY_TEXT)
def test_a_name_in_a_path_is_one_segment_or_refused(name: str) -> None:
    try:
        made = segment(name)
    except InputError:
        return
    assert made.isascii()
    assert not set(made) & set("/?# \r\n")
