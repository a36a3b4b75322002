"""Copies of chosen rows out of a large array and back into it."""

from __future__ import annotations

from typing import Any

import numpy as np

from trek.ps.compiled import AHEAD, compiled, prefetch

Array = np.ndarray[Any, Any]
_WORDS = {0: np.uint64, 4: np.uint32}


def gather(source: Array, rows: Array) -> Array:
    """A copy of `source[rows]`; anything where a row is negative."""
    block = np.empty((len(rows), *source.shape[1:]), source.dtype)
    _gather(_words(source), rows, _words(block))
    return block


def scatter(target: Array, rows: Array, block: Array) -> None:
    """`target[rows] = block`."""
    _scatter(_words(target), rows, _words(np.ascontiguousarray(block)))


def _words(array: Array) -> Array:
    """The same memory in as few words as possible: whole words are copied faster, and need no other code."""
    return array.view(_WORDS.get(array.shape[1] * array.itemsize % 8, np.uint16))


@compiled
def _gather(source: Array, rows: Array, block: Array) -> None:
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(source, max(rows[i + AHEAD], 0))
        row, copy = source[max(rows[i], 0)], block[i]
        for j in range(len(copy)):
            copy[j] = row[j]


@compiled
def _scatter(target: Array, rows: Array, block: Array) -> None:
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(target, rows[i + AHEAD])
        row, copy = target[rows[i]], block[i]
        for j in range(len(copy)):
            row[j] = copy[j]
