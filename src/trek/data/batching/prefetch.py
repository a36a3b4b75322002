"""Prefetching: the next items of an iterator made ahead by a thread, in order, errors included."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trek.errors import InputError

_Item = TypeVar("_Item")
_END = object()


@contextmanager
def prefetched(items: Iterator[_Item], *, depth: int) -> Iterator[Iterator[_Item]]:
    """The same items, up to `depth` of them made ahead; the thread ends with the block, wherever the reader stands."""
    if depth < 0:
        raise InputError(f"prefetch must be 0 or more batches, got {depth}.")
    if depth == 0:
        yield items
        return
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
    is_over = threading.Event()
    thread = threading.Thread(target=_fill, args=(items, ready, is_over), name="trek-prefetch", daemon=True)
    thread.start()
    try:
        yield _drain(ready)
    finally:
        is_over.set()
        while thread.is_alive():
            _empty(ready)
            thread.join(timeout=0.01)


def _fill(items: Iterator[Any], ready: queue.Queue[Any], is_over: threading.Event) -> None:
    try:
        for item in items:
            ready.put((item, None))
            if is_over.is_set():
                return
        ready.put((_END, None))
    except BaseException as error:  # noqa: BLE001 - raised where the items are read
        ready.put((_END, error))


def _drain(ready: queue.Queue[Any]) -> Iterator[Any]:
    while True:
        item, error = ready.get()
        if error is not None:
            raise error
        if item is _END:
            return
        yield item


def _empty(ready: queue.Queue[Any]) -> None:
    while not ready.empty():
        ready.get_nowait()
