"""HeldObjects: what some objects of this process are, put back in place later, to the bit and with the same identity.

Objects are followed through their attributes, containers, closures and bound methods. Of tensors the memory is copied,
of random generators the state. What is outside of the process, such as a file or a connection, is not followed, and
neither are the objects of other libraries, but for torch's, whose state is Python's to see.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from multiprocessing.process import BaseProcess
from threading import Thread
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler

from trek.data.loaders.own_generators import (
    Generator,
    attributes,
    find_generators,
    generator_state,
    restore_generator,
    walk,
)
from trek.strategies.sharded import is_sharded

_MAX_COPIED = 100_000
"""Items of a container that is copied; larger ones hold data."""
_MAX_ENTERED = 256
"""Items of a container of other things than a model's, into which is looked."""
_MAX_OBJECTS = 200_000
_LARGE_BYTES = 16 << 20
"""Memory of a tensor or array from which it is taken for data, unless it belongs to a model or an optimizer."""
_OF_TORCH = (nn.Module, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler, Sampler)
"""Kinds of objects of libraries that are followed; torchmetrics' objects are modules."""
_OF_TREK = ("trek.train.loop.", "trek.train.metrics.", "trek.train.callbacks.", "trek.testing.")
_LEAVES = (str, bytes, bool, int, float, complex, type(None), type, range, torch.dtype, torch.device, torch.Size)

Undo = Callable[[], None]


class HeldObjects:
    """The state of the objects passed to `hold`."""

    def __init__(self, *, opaque: tuple[type, ...] = ()) -> None:
        """Objects of the types `opaque` are not followed."""
        self._opaque = (*opaque, Thread, BaseProcess)
        self._known: dict[int, Any] = {}
        """Also keeps the objects, so that no other one gets the id of one of them."""
        self._storages: set[int] = set()
        self._undo: list[Undo] = []

    def hold(self, roots: Iterable[Any], *, with_data: bool) -> None:
        """Hold `roots` and what they refer to; without `with_data`, large tensors are taken for data that stays."""
        waiting = list(roots)[::-1]
        while waiting and len(self._known) < _MAX_OBJECTS:
            value = waiting.pop()
            if isinstance(value, (*_LEAVES, *self._opaque)) or id(value) in self._known:
                continue
            self._known[id(value)] = value
            waiting.extend(reversed(list(self._hold(value, with_data=with_data))))

    def leave(self, roots: Mapping[str, Any]) -> None:
        """Never put back `roots` and what belongs to them."""
        self._known.update({id(value): value for _, value in walk(roots)})

    def hold_generators(self, roots: Mapping[str, Any]) -> None:
        """Hold the random generators in `roots`, also those in objects of other libraries."""
        for generator in find_generators(roots).values():
            self._known[id(generator)] = generator
            self._undo.append(partial(restore_generator, generator, generator_state(generator)))

    def knows(self, value: Any) -> bool:
        """Whether the object is held."""
        return id(value) in self._known

    def put_back(self) -> None:
        """Put everything back to where it was."""
        with torch.no_grad():
            for undo in reversed(self._undo):
                undo()

    def _hold(self, value: Any, *, with_data: bool) -> Iterator[Any]:
        """Hold one object; what to look at next."""
        if isinstance(value, torch.Tensor):
            yield from self._hold_tensor(value, with_data=with_data)
        elif isinstance(value, np.ndarray):
            if value.flags.writeable and (with_data or value.nbytes < _LARGE_BYTES):
                self._undo.append(partial(np.copyto, value, value.copy()))
        elif isinstance(value, dict | list | deque | set):
            yield from self._hold_container(value)
        elif isinstance(value, tuple):
            yield from value[:_MAX_ENTERED]
        elif isinstance(value, partial):
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, MethodType):
            yield value.__self__
        elif isinstance(value, FunctionType):
            yield from self._hold_function(value)
        elif isinstance(value, Generator):
            self._undo.append(partial(restore_generator, value, generator_state(value)))
        elif _is_followed(value):
            yield from self._hold_attributes(value)

    def _hold_tensor(self, tensor: torch.Tensor, *, with_data: bool) -> Iterator[Any]:
        own: torch.Tensor = tensor._local_tensor if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
        if is_lazy(own) or own.is_meta:
            return
        if hasattr(own, "__tensor_flatten__"):  # made of other tensors, which have the memory
            yield from (getattr(own, name) for name in own.__tensor_flatten__()[0])
            return
        if own.layout is not torch.strided:
            yield from (own._indices(), own._values()) if own.layout is torch.sparse_coo else ()
            return
        storage = own.untyped_storage()
        if not with_data and storage.nbytes() >= _LARGE_BYTES:
            return
        if tensor.is_leaf:
            gradient = tensor.grad
            self._undo.append(partial(setattr, tensor, "grad", gradient))
            yield gradient
            if own is tensor:
                self._undo.append(partial(_restore_data, tensor, tensor.detach()))
        if storage._cdata not in self._storages:
            self._storages.add(storage._cdata)
            self._undo.append(partial(_restore_storage, storage, _copy_of(storage)))

    def _hold_container(self, value: Any) -> Iterator[Any]:
        if len(value) <= _MAX_COPIED:
            content = list(value.items()) if isinstance(value, dict) else list(value)
            self._undo.append(partial(_restore_container, value, content))
        if len(value) <= _MAX_ENTERED or _is_of_tensors(value):
            yield from value.values() if isinstance(value, dict) else list(value)

    def _hold_attributes(self, value: Any) -> Iterator[Any]:
        named = attributes(value)
        own = getattr(value, "__dict__", None)
        if own is not None:
            self._undo.append(partial(_restore_container, own, list(own.items())))
        for name, one in named:
            if own is None or name not in own:
                self._undo.append(partial(object.__setattr__, value, name, one))
        yield from (one for name, one in named if not _is_hook(name))
        if not _is_library_module(type(value).__module__):
            yield from self._hold_class(type(value))

    def _hold_class(self, kind: type) -> Iterator[Any]:
        """Class attributes that the user's code may count in, and what the methods have in their closures."""
        for base in kind.__mro__:
            if id(base) in self._known or _is_library_module(base.__module__):
                continue
            self._known[id(base)] = base
            for name, one in list(vars(base).items()):
                if isinstance(one, bool | int | float) and not name.startswith("__"):
                    self._undo.append(partial(setattr, base, name, one))
                elif isinstance(one, FunctionType | dict | list | set | deque | torch.Tensor):
                    yield one

    def _hold_function(self, function: FunctionType) -> Iterator[Any]:
        """What a function of the user counts in: variables around it, and globals of its module."""
        if function.__module__ is None or _is_library_module(function.__module__):
            return
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._undo.append(partial(setattr, cell, "cell_contents", content))
            yield content
        for name in _names(function.__code__):
            one = function.__globals__.get(name)
            if isinstance(one, bool | int | float):
                self._undo.append(partial(function.__globals__.__setitem__, name, one))
            elif isinstance(one, dict | list | set | deque):
                yield one


def _restore_container(value: Any, content: list[Any]) -> None:
    if isinstance(value, dict):
        now = list(value.items())
        if len(now) != len(content) or any(
            a is not c or b is not d for (a, b), (c, d) in zip(now, content, strict=True)
        ):
            kind = OrderedDict if isinstance(value, OrderedDict) else dict  # and not the method of a Counter
            kind.clear(value)
            kind.update(value, content)
    elif len(value) != len(content) or any(a is not b for a, b in zip(value, content, strict=True)):
        value.clear()
        (value.update if isinstance(value, set) else value.extend)(content)


def _restore_data(tensor: torch.Tensor, alias: torch.Tensor) -> None:
    """Refer to the same memory again: `tensor.data` may have been assigned."""
    if tensor.data_ptr() != alias.data_ptr() or tensor.shape != alias.shape or tensor.dtype != alias.dtype:
        tensor.data = alias


def _copy_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """On the host, since a device may have no memory left for a second model."""
    copied: torch.UntypedStorage = storage.clone() if storage.device.type == "cpu" else storage.cpu()  # type: ignore[no-untyped-call]
    return copied


def _restore_storage(storage: torch.UntypedStorage, copied: torch.UntypedStorage) -> None:
    if _is_equal(storage, copied):  # memory that cannot be written, such as that of a mapped file, is left alone
        return
    if storage.nbytes() != copied.nbytes():
        storage.resize_(copied.nbytes())
    storage.copy_(copied)


def _is_equal(storage: torch.UntypedStorage, copied: torch.UntypedStorage) -> bool:
    """Whether the bytes of two storages on the host are the same."""
    if storage.device.type != "cpu" or storage.nbytes() != copied.nbytes():
        return False
    one, other = (torch.empty(0, dtype=torch.uint8).set_(each) for each in (storage, copied))
    return torch.equal(one, other)


def _is_of_tensors(value: Any) -> bool:
    """Whether it belongs to a model or an optimizer, whose size has no limit: by tensors, or with tensors."""
    first = next(iter(value.items() if isinstance(value, dict) else value), None)
    parts = first if isinstance(first, tuple) else (first,)
    return any(isinstance(part, torch.Tensor | nn.Module) for part in parts)


def _is_followed(value: Any) -> bool:
    """Whether to look at the attributes of an object."""
    return (
        isinstance(value, _OF_TORCH)
        or type(value).__module__.startswith(_OF_TREK)
        or not _is_library_module(type(value).__module__)
    )


def _is_library_module(name: str) -> bool:
    """Whether a module is of Python, of Trek or of an installed package, and not of the user."""
    root = name.partition(".")[0]
    if name.startswith("trek.testing."):  # has Trials as users write them
        return False
    if root == "trek" or (root in sys.stdlib_module_names and root != "__main__"):
        return True
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _is_hook(name: str) -> bool:
    """torch's own bookkeeping of a module."""
    return name.startswith("_") and "hook" in name


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
