"""Progress bars: on a terminal or in a notebook, or through the program that started this process.

A process that another program of Trek started has no terminal of its own. It sends its bars there, with
`show_bars_through`, and that program draws them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

_SEND_EVERY_S = 0.1


class Bar(Protocol):
    """The interface of a progress bar."""

    def update(self, n: float = 1) -> Any:
        """Advance by `n`."""


class _NoBar(AbstractContextManager["_NoBar"]):
    def update(self, n: float = 1) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        pass


class _SentBar(AbstractContextManager["_SentBar"]):
    """A bar that is drawn elsewhere: sends how far it is, at most every tenth of a second."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None], label: str, total: int | None, start: int) -> None:
        self._send = send
        self._count: float = start
        self._sent_s = time.monotonic()
        send({"bar": "open", "label": label, "total": total, "start": start})

    def update(self, n: float = 1) -> None:
        self._count += n
        now = time.monotonic()
        if now - self._sent_s >= _SEND_EVERY_S:
            self._sent_s = now
            self._send({"bar": "at", "count": self._count})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._send({"bar": "at", "count": self._count})
        self._send({"bar": "close"})


_send: Callable[[Mapping[str, Any]], None] | None = None


def show_bars_through(send: Callable[[Mapping[str, Any]], None]) -> None:
    """From now on, bars of this process are sent as messages, for a `BarScreen` to draw."""
    global _send
    _send = send


def open_bar(
    label: str, *, total: int | None, start: int = 0, is_shown: bool, leave: bool = False
) -> AbstractContextManager[Bar]:
    """A bar that counts from `start` to `total`; shown only on a terminal, in a notebook, or where it is sent to."""
    if not is_shown:
        return _NoBar()
    if _send is not None:
        return _SentBar(_send, label, total, start)
    if not can_show_bars():
        return _NoBar()
    bar: AbstractContextManager[Bar] = _draw_bar(label, total=total, start=start, leave=leave)
    return bar


class BarScreen:
    """Draws the bar that another process sends, one at a time."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, message: Mapping[str, Any]) -> None:
        """Follow one message of the other process."""
        if message["bar"] == "open":
            self.close()
            self._bar = _draw_bar(message["label"], total=message["total"], start=message["start"])
        elif message["bar"] == "close":
            self.close()
        elif self._bar is not None:
            self._bar.update(message["count"] - self._bar.n)

    def close(self) -> None:
        """Remove the bar, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def draws_bars() -> bool:
    """Whether bars of this process are drawn, here or where they are sent to."""
    return _send is not None or can_show_bars()


def can_show_bars() -> bool:
    """Whether this process writes to a terminal or a notebook."""
    return (sys.stderr is not None and sys.stderr.isatty()) or _is_notebook()


def print_above_bars(text: str, *, file: Any = None) -> None:
    """Print a line, by default to stderr, without breaking a progress bar."""
    from tqdm.auto import tqdm

    tqdm.write(text, file=file or sys.stderr)


def _draw_bar(label: str, *, total: int | None, start: int, leave: bool = False) -> Any:
    from tqdm.auto import tqdm  # chosen when it is imported: a widget in a notebook

    return tqdm(desc=label, total=total, initial=start, leave=leave, ncols=_fallback_width())


def _fallback_width() -> int | None:
    """A width for terminals that say they have none; None where tqdm finds it."""
    try:
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 80
    except (OSError, ValueError, AttributeError):
        return None


def _is_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and "IPKernelApp" in shell.config
