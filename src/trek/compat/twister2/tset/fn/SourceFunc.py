"""`twister2.tset.fn.SourceFunc`: what a source reads from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class SourceFunc(ABC):
    """Elements one after the other. Each partition is read by a copy, so that reading again starts anew."""

    @abstractmethod
    def has_next(self) -> bool:
        """Whether there is another element."""

    @abstractmethod
    def next(self) -> Any:
        """The next element: plain values, arrays, tensors, and lists, tuples and dicts of these."""
