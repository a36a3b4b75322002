"""The progress bar of the leader, and one for the other ranks that shows nothing."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from tqdm import tqdm


class Bar(Protocol):
    """The interface of a progress bar."""

    def update(self, n: float = 1) -> Any:
        """Advance by `n`."""


class _NoBar(AbstractContextManager["_NoBar"]):
    def update(self, n: float = 1) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        pass


def open_bar(
    label: str, *, total: int | None, start: int = 0, is_shown: bool, leave: bool = False
) -> AbstractContextManager[Bar]:
    """A bar that counts from `start` to `total`; shown only on a terminal."""
    if not is_shown:
        return _NoBar()
    bar: AbstractContextManager[Bar] = tqdm(desc=label, total=total, initial=start, leave=leave, disable=None)
    return bar


def print_above_bars(text: str) -> None:
    """Print a line to stderr without breaking a progress bar."""
    tqdm.write(text, file=sys.stderr)
