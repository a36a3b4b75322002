"""Levels of log lines, going by their text, and finding lines by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trek.control.logs.levels import LEVELS, levels_of, name_of
from trek.control.logs.query import LogSearch
from trek.testing.clock import FakeClock

MakePlane = Callable[..., Any]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("epoch 1: loss 0.5", "info"),
        ("2024-01-01 10:00:00 WARNING root: disk is slow", "warning"),
        ("[WARN] low memory", "warning"),
        ("ERROR:root:it broke", "error"),
        ("trek: error: no such file", "error"),
        ("DEBUG 12 tensors", "debug"),
        ("ValueError: no", "error"),
        ("torch.OutOfMemoryError: CUDA", "error"),
        ("/a/b.py:3: UserWarning: old", "warning"),
        ("CRITICAL: the end", "critical"),
        ("the error rate is 0.1", "info"),
        ("Exit was calm", "info"),
    ],
)
def test_a_line_has_the_level_it_tells(line: str, level: str) -> None:
    assert name_of(levels_of([line])[0]) == level


def test_a_traceback_is_an_error_from_first_to_last() -> None:
    lines = ["fine", "Traceback (most recent call last):", '  File "a.py", line 1', "    x()", "KeyError: 'x'", "fine"]
    assert [name_of(level) for level in levels_of(lines)] == ["info", "error", "error", "error", "error", "info"]
    assert list(LEVELS.values()) == sorted(LEVELS.values())


def test_lines_are_found_by_text_rank_level_and_time(make_plane: MakePlane) -> None:
    clock = FakeClock()
    plane = make_plane("print('hello'); print('WARNING slow', flush=True); outcome('done')", clock=clock)
    now_s = clock.now_s()
    number = plane.create(resources={"slots_per_trial": 2})
    plane.run_until(lambda: plane.services.experiments.get(number).state == "completed")

    def found(**search: Any) -> list[tuple[int, str]]:
        lines = plane.services.logs.read(experiment_id=number, search=LogSearch(**search))
        return sorted((line.rank, line.text) for line in lines)

    assert found(level="warning") == [(0, "WARNING slow"), (1, "WARNING slow")]
    assert found(level="warning", rank=1) == [(1, "WARNING slow")]
    assert found(text="HELL", rank=0) == [(0, "hello")]
    assert found(level="error") == []
    assert len(found(since=now_s, until=now_s)) == 4
    assert found(until=now_s - 1) == found(since=now_s + 1) == []
