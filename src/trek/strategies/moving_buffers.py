"""MovingBuffers: keeps the buffers that training changes equal on all ranks, by copying the leader's after each batch.

A running normaliser, a codebook or a queue is read by the next forward pass, so replicas whose buffers differ would
compute different functions. Which buffers move is found out while training: those that some rank has written to or
replaced, all ranks together. Constant buffers are never sent. Neither are the running statistics of torch's own norm
layers, which training writes but does not read; they are copied before they are used or saved. A buffer that
changes its shape (a cache that grows) is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from trek.errors import InputError

_Mark = tuple[int, int]


class MovingBuffers:
    """The buffers of one model. Every rank calls `sync` after the same batches."""

    def __init__(
        self,
        model: nn.Module,
        *,
        any_rank: Callable[[bool], bool],
        gather: Callable[[Any], list[Any]],
        copy_leaders: Callable[[list[torch.Tensor]], None],
    ) -> None:
        self._places = [
            (f"{path}.{key}".removeprefix("."), module, key)
            for path, module in model.named_modules()
            for key in module._buffers
        ]
        self._any_rank = any_rank
        self._gather = gather
        self._copy_leaders = copy_leaders
        self._moving: dict[str, None] = {}
        """Names, in the same order on every rank."""
        self._unlike: set[str] = set()
        """Names of buffers that have changed their shape on some rank."""
        self._found: set[str] = set()
        """Names of buffers that were seen to move here, and are not agreed about yet."""
        self._marks: dict[str, _Mark] = {}
        self._shapes = {
            name: buffer.shape for name, module, key in self._places if (buffer := module._buffers[key]) is not None
        }
        self.mark()

    @property
    def is_needed(self) -> bool:
        """Whether there is any buffer that a forward pass may read and write."""
        return any(not _is_statistic(module) for _, module, _ in self._places)

    def mark(self) -> None:
        """What was written until now is not training's: another part has copied or restored it."""
        self._marks = {name: _mark(buffer) for name, buffer in self._current()}

    def sync(self) -> None:
        """Copy the leader's moving buffers to every rank."""
        current = dict(self._current())
        self._found.update(name for name in self._moving if not self._is_as_made(name, current))
        for name, buffer in current.items():
            if name not in self._moving and name not in self._unlike and self._marks.get(name) != _mark(buffer):
                self._found.add(name)
        if self._any_rank(bool(self._found)):
            self._agree(current)
        if self._moving:
            self._copy_leaders([self._checked(name, current) for name in self._moving])
        self.mark()

    def _agree(self, current: dict[str, torch.Tensor]) -> None:
        """Exchange which buffers move, and which of them have the shape that they were made with."""
        names = sorted({name for found in self._gather(sorted(self._found)) for name in found})
        of_ranks = self._gather([self._is_as_made(name, current) for name in names])
        for name, *are_as_made in zip(names, *of_ranks, strict=True):
            self._moving.pop(name, None)
            if all(are_as_made):
                self._moving[name] = None
            else:
                self._unlike.add(name)
        self._found.clear()

    def _is_as_made(self, name: str, current: dict[str, torch.Tensor]) -> bool:
        return name in current and current[name].shape == self._shapes.get(name)

    def _checked(self, name: str, current: dict[str, torch.Tensor]) -> torch.Tensor:
        if not self._is_as_made(name, current):  # found out too late to leave it alone
            raise InputError(
                f"buffer {name!r} changed its shape while it was kept equal between ranks. Make it with its final "
                "shape, or keep it as a plain attribute."
            )
        return current[name]

    def _current(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The buffers that count now, in the same order on every rank."""
        for name, module, key in self._places:
            buffer = module._buffers.get(key)
            if buffer is not None and not (module.training and _is_statistic(module)):
                yield name, buffer


def _mark(buffer: torch.Tensor) -> _Mark:
    """Changes when the buffer is written to or replaced."""
    return id(buffer), buffer._version


def _is_statistic(module: nn.Module) -> bool:
    """Whether it is one of torch's own norm layers, and no subclass that may read what it has collected."""
    return isinstance(module, _NormBase) and type(module).__module__.startswith("torch.nn.")
