"""Choosing log lines on the command line."""

from __future__ import annotations

import time
from datetime import datetime

import click
import pytest

from trek.cli.lines import Moment


def test_a_moment_is_a_date_a_time_of_today_or_how_long_ago() -> None:
    moment = Moment()
    assert moment.convert("2024-05-01T10:30", None, None) == datetime(2024, 5, 1, 10, 30).timestamp()
    assert moment.convert("2024-05-01", None, None) == datetime(2024, 5, 1).timestamp()
    assert moment.convert("2h", None, None) == pytest.approx(time.time() - 7200, abs=60)
    assert datetime.fromtimestamp(moment.convert("10:30", None, None)).strftime("%H:%M") == "10:30"


@pytest.mark.parametrize("text", ["yesterday", "", "10x", "2024-13-01", "m"])
def test_what_is_no_moment_is_said_with_the_remedy(text: str) -> None:
    with pytest.raises(click.BadParameter, match="invalid time"):
        Moment().convert(text, None, None)
