"""Functions to serve, as `trek.testing.served_functions:name`, for tests of serving. Load no torch."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np


def double(x: np.ndarray) -> dict[str, np.ndarray]:
    """Twice the input; fails for negative ones, and ends its process for 666."""
    if (x == 666).any():
        os._exit(9)
    if (x < 0).any():
        raise ValueError("negative")
    return {"y": x * 2}


def slow(x: np.ndarray) -> dict[str, np.ndarray]:
    """The input, after as many seconds."""
    time.sleep(float(x.max()))
    return {"y": x, "together": np.full(len(x), len(x))}


def who(x: np.ndarray) -> dict[str, np.ndarray]:
    """The process that answers."""
    return {"pid": np.full(len(x), os.getpid())}


def count(to: np.ndarray) -> Iterator[dict[str, int]]:
    """A stream of numbers; fails at 13."""
    for number in range(int(to.max())):
        if number == 13:
            raise ValueError("thirteen")
        yield {"number": number}


def endless(start: np.ndarray) -> Iterator[dict[str, Any]]:
    """A stream without an end, of pieces of about a kilobyte."""
    for number in itertools.count(int(start.max())):
        yield {"number": number, "padding": "x" * 1000}


def broken() -> Any:
    """Cannot be made."""
    raise RuntimeError("no such weights")


def upper(text: np.ndarray) -> dict[str, np.ndarray]:
    """Texts in capital letters."""
    return {"text": np.asarray([one.upper() for one in text], dtype=object)}
