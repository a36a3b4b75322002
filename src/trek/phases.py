"""Phases: named places of a run at which a test listens, to look or to make its process fail there.

Outside of tests nothing listens, and a phase costs one look at an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str], None]

_listeners: list[Listener] = []


def reached(phase: str) -> None:
    """This process has come to `phase`; an exception of a listener is raised here."""
    for listener in _listeners:
        listener(phase)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, `listener` is called with every phase that this process reaches, in the thread that does."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
