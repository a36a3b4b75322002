"""ProgressLines: the progress of a run as lines of plain text, where no bar can be drawn: in a file, a pipe or a log.

A Logger, so it is the leader's alone. Knows nothing about bars; see `progress`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from trek.train.loggers.base import Logger, MetricRow
from trek.train.loop.progress import draws_bars

_EVERY_S = 5.0
"""Seconds between two lines about reports; lines about validations are always written."""


class ProgressLines(Logger):
    """One line per report, and one per validation. Never raises an error because nobody reads them."""

    def __init__(
        self, place: Callable[[], str], *, is_shown: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`place` says where in the run the present report or validation is."""
        self._place = place
        self._is_shown = is_shown
        self._clock = clock
        self._next_s = -float("inf")
        self._training: Mapping[str, float] = {}

    def log_metrics(self, row: MetricRow) -> None:
        """The pace of a report comes after its metrics, and they make one line."""
        if not self._is_shown() or draws_bars():
            return
        if row.group == "training":
            self._training = row.metrics
        elif row.group == "validation":
            self._write("validation: ", row.metrics)
        elif row.group == "system" and self._clock() >= self._next_s:
            self._next_s = self._clock() + _EVERY_S
            self._write("", self._training, f"{row.metrics['records_per_s']:.4g} records/s")

    def _write(self, what: str, metrics: Mapping[str, float], *more: str) -> None:
        parts = [*(f"{_plain(name)} {value:.4g}" for name, value in metrics.items()), *more]
        try:
            sys.stderr.write(f"trek: {self._place()}: {what}{', '.join(parts)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # closed by whoever read it
            self._is_shown = bool


def _plain(name: str) -> str:
    """A name of the user without control characters."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in name)
