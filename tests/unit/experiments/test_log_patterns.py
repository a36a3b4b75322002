"""Patterns of log policies: found as expected, whatever the pattern and the line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.errors import InputError
from trek.experiments.log_patterns import LogPatterns, compile_pattern

EVIL = ["(a+)+$", "(a|a)*$", "(a|aa)+$", "([a-z]+)*$", "(.*a){20}", "^(([a-z])+.)+[A-Z]([a-z])+$"]


@pytest.mark.parametrize("pattern", EVIL)
def test_no_pattern_takes_long(pattern: str) -> None:
    """A pattern like (a+)+$ took time exponential in the line, with the whole control plane waiting."""
    lines = ["a" * 16_000 + "!"] * 5
    assert LogPatterns([f"^{pattern}"]).first_match(lines) == (lines[0] if pattern == "(.*a){20}" else None)


@given(st.text(st.sampled_from("ab()*+?|[]^$.{2}\\"), max_size=12), st.text(st.sampled_from("ab!\n"), max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_pattern_or_one_error(pattern: str, line: str) -> None:
    try:
        found = compile_pattern(pattern)
    except InputError:
        return
    assert found.search(line) is None or found.search(line).start() >= 0


@pytest.mark.parametrize("pattern", ["out of memory", "(?i)OOM", "^trek: .*error", r"rank \d+", "a|b$"])
@pytest.mark.parametrize("line", ["CUDA out of memory", "oom", "trek: an error", "rank 12", "xb", "nothing here: c"])
def test_common_patterns_mean_what_they_mean_in_python(pattern: str, line: str) -> None:
    assert (LogPatterns([pattern]).first_match([line]) is not None) == (re.search(pattern, line) is not None)


def test_text_that_cannot_be_encoded_is_one_error() -> None:
    with pytest.raises(InputError, match="not valid text"):
        compile_pattern("\ud800")
