"""Options of engines as words."""

from __future__ import annotations

import pytest

from trek.engines import open_engine
from trek.engines.option_words import read_engine_options
from trek.errors import ConfigError, InputError


def test_values_are_yaml() -> None:
    words = ["address=10.0.0.1:6379", "cpus=2", "resources={tpu: 1}", "wait_s=0.5"]
    expected = {"address": "10.0.0.1:6379", "cpus": 2, "resources": {"tpu": 1}, "wait_s": 0.5}
    assert read_engine_options(words) == expected


@pytest.mark.parametrize("word", ["cpus", "=2", "resources={"])
def test_what_is_not_an_option_is_refused(word: str) -> None:
    with pytest.raises(InputError, match="engine option"):
        read_engine_options([word])


def test_an_engine_refuses_options_that_it_does_not_have() -> None:
    with pytest.raises(ConfigError, match="engine 'local' has no setting 'placement'"):
        open_engine("local", {"placement": "PACK"})
