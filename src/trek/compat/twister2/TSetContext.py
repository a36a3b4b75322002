"""`twister2.TSetContext`: what a function of `compute` knows of where it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trek.errors import InputError


class SideInput(list[Any]):
    """All elements of a side input, and those of the partition at hand, as Twister2's DataPartition has them."""

    def __init__(self, name: str, partitions: Sequence[list[Any]], *, index: int, parallelism: int) -> None:
        super().__init__(element for part in partitions for element in part)
        self._name, self._partitions = name, partitions
        self._index, self._parallelism = index, parallelism

    def consumer(self) -> Iterator[Any]:
        """The elements of this partition, or of the only one."""
        return iter(self._own())

    def first(self) -> Any:
        """The first element of this partition; None without one."""
        return next(self.consumer(), None)

    def first_or_default(self, default: Any) -> Any:
        """The same, or `default`."""
        return next(self.consumer(), default)

    def _own(self) -> list[Any]:
        if len(self._partitions) == 1:
            return self._partitions[0]
        if len(self._partitions) != self._parallelism:
            raise InputError(
                f"input {self._name!r} has {len(self._partitions)} partitions, and the TSet {self._parallelism}. Give "
                "both as many, or read all elements of the input as a list."
            )
        return self._partitions[self._index]


@dataclass(frozen=True)
class TSetContext:
    """One partition of a TSet."""

    index: int
    """The partition, from 0, over all workers."""
    worker_id: int
    parallelism: int
    """Number of partitions."""
    name: str = "tset"
    inputs: Mapping[str, Sequence[list[Any]]] = field(default_factory=dict)
    """The elements of side inputs, by partition."""

    def get_index(self) -> int:
        """The partition."""
        return self.index

    def get_input(self, name: str) -> SideInput:
        """A side input that was added by `add_input`."""
        if name not in self.inputs:
            raise InputError(f"input {name!r} not found. There are: {', '.join(self.inputs) or 'none'}.")
        return SideInput(name, self.inputs[name], index=self.index, parallelism=self.parallelism)
