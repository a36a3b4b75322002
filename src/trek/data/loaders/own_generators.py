"""Random generators that belong to a user's sampler, dataset or iterable: finding, saving, restoring and seeding them.

The global generators are handled by `trek.world.seeds`. A generator is found in attributes (of objects and of their
classes), in small containers, in closures, partials and bound methods, and in globals that the user's functions use.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

Generator = torch.Generator | random.Random | np.random.Generator | np.random.RandomState | np.random.BitGenerator
_KINDS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_LEAVES = (
    str,
    bytes,
    bool,
    int,
    float,
    complex,
    type(None),
    type,
    ModuleType,
    torch.Tensor,
    np.ndarray,
    torch.nn.Module,
)
# Larger containers hold data; what draws from a generator is one of few.
_MAX_ITEMS = 256
_MAX_OBJECTS = 10_000
_LIBRARIES = (
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "PIL",
    "trek",
    "builtins",
    "typing",
    "abc",
    "collections",
    "random",
)


def find_generators(roots: Mapping[str, Any]) -> dict[str, Generator]:
    """The generators that `roots` (by name) hold, by their path. Equal programs get equal paths."""
    return {path: value for path, value in walk(roots) if isinstance(value, _KINDS) and not _is_global(value)}


def walk(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every object that `roots` hold, once, with its path; data (tensors, texts, large containers) is not entered."""
    seen: set[int] = set()
    waiting = list(roots.items())[::-1]
    while waiting and len(seen) < _MAX_OBJECTS:
        path, value = waiting.pop()
        if id(value) in seen or (isinstance(value, _LEAVES) and not isinstance(value, _KINDS)):
            continue
        seen.add(id(value))
        yield path, value
        if not isinstance(value, _KINDS):
            waiting.extend(reversed([(f"{path}{name}", child) for name, child in _children(value)]))


def generator_state(generator: Generator) -> Any:
    """The state as plain data, which `restore_generator` takes."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    return _without_arrays(_numpy_state(generator))


def restore_generator(generator: Generator, state: Any) -> None:
    """Put a generator of the same kind back to a `generator_state`."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        whole = _with_arrays(state, like=_numpy_state(generator))
        if isinstance(generator, np.random.RandomState):
            generator.set_state(whole)
        else:
            _bits(generator).state = whole


def seed_generator(generator: Generator, seed: int) -> None:
    """Start a generator from `seed`, whatever it was made with."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    elif isinstance(generator, np.random.RandomState):
        generator.seed(seed % 2**32)
    else:
        _bits(generator).state = type(_bits(generator))(seed).state


def _numpy_state(generator: Any) -> Any:
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return _bits(generator).state


def _bits(generator: Any) -> Any:
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator


def _without_arrays(state: Any) -> Any:
    """NumPy's states hold arrays of unsigned numbers, which not every file format takes."""
    if isinstance(state, Mapping):
        return {key: _without_arrays(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def _with_arrays(state: Any, *, like: Any) -> Any:
    if isinstance(state, Mapping):
        return {key: _with_arrays(value, like=like.get(key)) for key, value in state.items()}
    return np.array(state, dtype=like.dtype) if isinstance(like, np.ndarray) else state


def _is_global(generator: Any) -> bool:
    known = (random._inst, np.random.mtrand._rand, torch.default_generator)
    return any(generator is one for one in known)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        if len(value) <= _MAX_ITEMS:
            yield from ((f"[{key!r}]", one) for key, one in list(value.items()))
    elif isinstance(value, list | tuple):
        if len(value) <= _MAX_ITEMS:
            yield from ((f"[{index}]", one) for index, one in enumerate(value))
    elif isinstance(value, MethodType):
        yield from ((".__self__", value.__self__), (".__func__", value.__func__))
    elif isinstance(value, partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, FunctionType):
        yield from _of_function(value)
    else:
        yield from ((f".{name}", one) for name, one in attributes(value))
        yield from _of_class(type(value))


def attributes(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object itself, in its order."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots: str | Sequence[str] = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return list(found.items())


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """Class attributes, and methods for the globals that they use; of the user's classes alone."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in _LIBRARIES:
            for name, value in vars(base).items():
                if isinstance(value, (*_KINDS, FunctionType)):
                    yield f".{base.__name__}.{name}", value


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"<{name}>", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    if function.__module__ is None or function.__module__.partition(".")[0] in _LIBRARIES:
        return
    for name in _names(function.__code__):
        if isinstance(value := function.__globals__.get(name), _KINDS):
            yield f"<{name}>", value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
