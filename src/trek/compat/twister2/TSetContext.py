"""`twister2.TSetContext`: what a function of `compute` knows of where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trek.errors import InputError


@dataclass(frozen=True)
class TSetContext:
    """One partition of a TSet."""

    index: int
    """The partition, from 0, over all workers."""
    worker_id: int
    parallelism: int
    """Number of partitions."""
    name: str = "tset"
    inputs: Mapping[str, list[Any]] = field(default_factory=dict)

    def get_input(self, name: str) -> list[Any]:
        """The elements of a side input that was added by `add_input`."""
        if name not in self.inputs:
            raise InputError(f"input {name!r} not found. There are: {', '.join(self.inputs) or 'none'}.")
        return self.inputs[name]
