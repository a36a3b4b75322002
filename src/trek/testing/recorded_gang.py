"""What tests of engines share: commands for members, a recorder of what a gang reports, and patience."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable

from trek.engines import Exit, OutputLine

PATIENCE_S = 240.0
NOTICE_S = 2.0
IMPORTS = ("trek.world",)
"""Lets an engine that has a warm start use it for the members of this suite."""


class Recorder:
    """Keeps what a gang reports, and in which order."""

    def __init__(self) -> None:
        self.news: list[OutputLine | Exit] = []

    def __call__(self, news: OutputLine | Exit) -> None:
        self.news.append(news)

    def texts(self, rank: int, stream: str = "stdout") -> list[str]:
        """Lines of one rank and stream."""
        return [n.text for n in self.news if isinstance(n, OutputLine) and (n.rank, n.stream) == (rank, stream)]


def python(code: str) -> list[str]:
    """A command line that runs `code`, and that an engine may start warm."""
    return [sys.executable, "-m", "trek.testing.code_member", textwrap.dedent(code)]


def wait_for(condition: Callable[[], bool], *, poll_s: float = 0.01) -> None:
    """Poll until `condition` holds; fail after minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(poll_s)
