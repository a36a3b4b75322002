"""What people see of a run while it runs."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from trek.flow import Flow
from trek.flow.reporting import LineReporter, LiveReporter, live_line

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=40)


@given(st.lists(NAMES, max_size=8), st.integers(1, 120))
def test_the_live_line_never_wraps(running: list[str], width: int) -> None:
    """It was cut at 150 columns, so on a narrower terminal every redraw left a line behind."""
    assert cell_len(live_line("[3/10]", running, width=width)) <= max(width - 1, 0)


def test_the_live_line_shows_as_many_steps_as_fit_and_counts_the_others() -> None:
    running = ["first 1 s", "second 2 s", "third 3 s"]
    assert live_line("[0/9]", running, width=100) == "[0/9] first 1 s, second 2 s, third 3 s"
    assert live_line("[0/9]", running, width=30) == "[0/9] first 1 s and 2 more"
    assert live_line("[0/9]", running, width=12) == "[0/9] firs…"
    assert live_line("[0/9]", [], width=80) == "[0/9]"


def test_a_live_reporter_asks_for_the_width_each_time() -> None:
    stream, widths = io.StringIO(), iter([80, 12])
    reporter = LiveReporter(1, stream=stream, width=lambda: next(widths))
    reporter.started(Flow("f").step(len, "", name="a_long_name").step, number=1, reason="")
    for _ in range(2):
        reporter._drawn_at = 0.0
        reporter.tick()
    assert stream.getvalue().split("\r\033[K")[1:] == ["[0/1] a_long_name 0 s", "[0/1] a_lo…"]


def test_steps_of_a_map_count_once_their_number_is_known() -> None:
    """`303 of 3 steps ended`, and a line for every one of them."""
    stream = io.StringIO()
    reporter = LineReporter(2, stream=stream)
    step = Flow("f").step(len, "", name="f").step
    reporter.added(98)
    for _ in range(100):
        reporter.ended(step, "done", reason="")
    assert stream.getvalue().splitlines() == [f"{n} of 100 steps ended" for n in range(10, 101, 10)]
