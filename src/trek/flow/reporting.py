"""Reporting the progress of a run to people. The base class reports nothing."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from trek.flow.graph import Step

_MANY_STEPS = 60
_SIGNS = {"done": "✓", "cached": "=", "skipped": "-", "blocked": "!"}


class Reporter:
    """Reports nothing."""

    period_s: float | None = None
    """How often `tick` wants to be called; None for never."""

    def added(self, count: int) -> None:
        """The run has so many steps more: those of a map whose list is known now."""

    def started(self, step: Step, *, number: int, reason: str) -> None:
        """An attempt begins."""

    def ended(self, step: Step, state: str, *, reason: str, seconds: float | None = None) -> None:
        """A step is done, kept, skipped or blocked."""

    def failed(self, step: Step, error: str, *, retry_in_s: float | None) -> None:
        """An attempt failed."""

    def tick(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """The run is over."""


class LineReporter(Reporter):
    """A line for each step that ended; with very many steps, only failures and how many have ended."""

    def __init__(self, num_steps: int, *, stream: TextIO | None = None) -> None:
        self._num_steps = num_steps
        self._num_ended = 0
        self._stream = stream or sys.stderr

    @property
    def _is_brief(self) -> bool:
        return self._num_steps > _MANY_STEPS

    def added(self, count: int) -> None:
        """Count them too."""
        self._num_steps += count

    def ended(self, step: Step, state: str, *, reason: str, seconds: float | None = None) -> None:
        """Print it."""
        self._num_ended += 1
        if not self._is_brief:
            taken = "" if seconds is None else f" in {seconds:.1f} s"
            self._print(f"{_SIGNS[state]} {step.name}: {state}{taken} ({reason})")
        elif self._num_ended % max(self._num_steps // 10, 1) == 0:
            self._print(f"{self._num_ended} of {self._num_steps} steps ended")

    def failed(self, step: Step, error: str, *, retry_in_s: float | None) -> None:
        """Print it."""
        then = "" if retry_in_s is None else f"; next attempt in {retry_in_s:.1f} s"
        self._print(f"✗ {step.name}: {error}{then}")

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveReporter(LineReporter):
    """The same on a terminal, with a last line that shows what is running now and for how long."""

    period_s = 0.2

    def __init__(self, num_steps: int, *, stream: TextIO | None = None, width: Callable[[], int] | None = None) -> None:
        super().__init__(num_steps, stream=stream)
        self._width = width or _terminal_width
        self._running: dict[Step, float] = {}
        self._drawn_at = 0.0

    def started(self, step: Step, *, number: int, reason: str) -> None:
        """Show it as running."""
        self._running[step] = time.monotonic()

    def ended(self, step: Step, state: str, *, reason: str, seconds: float | None = None) -> None:
        """Print it above the last line."""
        self._running.pop(step, None)
        super().ended(step, state, reason=reason, seconds=seconds)

    def failed(self, step: Step, error: str, *, retry_in_s: float | None) -> None:
        """Print it above the last line."""
        self._running.pop(step, None)
        super().failed(step, error, retry_in_s=retry_in_s)

    def tick(self) -> None:
        """Redraw the last line."""
        now = time.monotonic()
        if now - self._drawn_at < self.period_s:
            return
        self._drawn_at = now
        running = [f"{step.name} {now - began:.0f} s" for step, began in self._running.items()]
        line = live_line(f"[{self._num_ended}/{self._num_steps}]", running, width=self._width())
        self._stream.write(f"\r\033[K{line}")
        self._stream.flush()

    def close(self) -> None:
        """Remove the last line."""
        self._stream.write("\r\033[K")
        self._stream.flush()

    def _print(self, text: str) -> None:
        self._stream.write("\r\033[K")
        super()._print(text)


def live_line(count: str, running: Sequence[str], *, width: int) -> str:
    """How far the run is and what is running, in less than `width` columns: a line that wraps could not be redrawn."""
    room = width - 1
    for shown in range(len(running), 0, -1):
        others = len(running) - shown
        text = f"{count} {', '.join(running[:shown])}" + (f" and {others} more" if others else "")
        if cell_len(text) <= room:
            return text
    text = f"{count} {running[0]}" if running else count
    return text if cell_len(text) <= room else f"{set_cell_size(text, max(room - 1, 0)).rstrip()}…"[: max(room, 0)]


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def choose_reporter(num_steps: int, *, show: bool) -> Reporter:
    """A live one on a terminal, lines elsewhere, nothing unless `show`."""
    if not show:
        return Reporter()
    return LiveReporter(num_steps) if sys.stderr.isatty() else LineReporter(num_steps)
