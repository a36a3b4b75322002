"""Fingerprints: a hash of what a computation depends on, equal when it would give the same, different when it may not.

A function counts by what it does: its byte code, constants, names, defaults, closure, and the functions and values of
its module that it uses. Moving it to another line, or commenting it, changes nothing.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_BLOCK_BYTES = 1 << 19
_PLAIN = (type(None), bool, int, float, complex, str, bytes, Path)


def fingerprint(value: Any) -> str:
    """A hash of `value`: plain values, containers, arrays, Arrow data, functions, and objects by class and state."""
    digest = hashlib.sha256()
    for token in _tokens(value, seen=set()):
        digest.update(len(token).to_bytes(8, "little"))
        digest.update(token)
    return digest.hexdigest()


def _tokens(value: Any, *, seen: set[int]) -> Iterator[Any]:
    """Byte strings that spell `value`. `seen` holds the objects on the way here, so that a circle ends."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__}:{value!r}".encode()
    elif id(value) in seen:
        yield b"again"
    else:
        yield type(value).__qualname__.encode()
        yield from _container_tokens(value, seen=seen | {id(value)})


def _container_tokens(value: Any, *, seen: set[int]) -> Iterator[Any]:
    for kinds, spell in _SPELLINGS:
        if isinstance(value, kinds):
            yield from spell(value, seen)
            return
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        yield from _arrow_tokens(value)
    elif hasattr(value, "detach") and hasattr(value, "numpy"):
        yield from _array_tokens(value.detach().cpu().numpy(), seen)
    else:
        yield from _object_tokens(value, seen)


def _sequence_tokens(value: Any, seen: set[int]) -> Iterator[Any]:
    yield str(len(value)).encode()
    for item in value:
        yield from _tokens(item, seen=seen)


def _set_tokens(value: Any, seen: set[int]) -> Iterator[Any]:
    yield from sorted(fingerprint(item).encode() for item in value)


def _mapping_tokens(value: Any, seen: set[int]) -> Iterator[Any]:
    for key in sorted(value, key=repr):
        yield from _tokens(key, seen=seen)
        yield from _tokens(value[key], seen=seen)


def _array_tokens(value: np.ndarray, seen: set[int]) -> Iterator[Any]:
    yield f"{value.dtype.str}{value.shape}".encode()
    if value.dtype == object:
        yield from _sequence_tokens(value.ravel().tolist(), seen)
    else:
        yield from _bytes_tokens(np.ascontiguousarray(value).reshape(-1).view(np.uint8))


def _bytes_tokens(content: np.ndarray) -> Iterator[Any]:
    """Large content by 128 bits for every half megabyte, at the speed of memory; small content as it is."""
    num_blocks = len(content) // _BLOCK_BYTES
    blocks = content[: num_blocks * _BLOCK_BYTES].reshape(num_blocks, _BLOCK_BYTES).view(np.uint64)
    for block in blocks:
        yield np.einsum("i,ij->j", block, _block_weights()).tobytes()
    yield content[num_blocks * _BLOCK_BYTES :].tobytes()


@functools.cache
def _block_weights() -> np.ndarray:
    """Odd numbers without pattern: a word that changed changes the sum over its block."""
    words = np.arange(2 * _BLOCK_BYTES // 8, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = (words + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((words ^ (words >> np.uint64(31))) | np.uint64(1)).reshape(-1, 2)


def _arrow_tokens(value: Any) -> Iterator[Any]:
    import pyarrow as pa

    table = pa.table({"value": value}) if isinstance(value, pa.Array | pa.ChunkedArray) else pa.table(value)
    for name in table.column_names:
        column = table.column(name)
        yield f"{name}:{column.type}:{len(column)}".encode()
        yield from _column_tokens(column)


def _column_tokens(column: Any) -> Iterator[Any]:
    import pyarrow as pa

    from trek.data.tensors import to_numpy

    if not column.null_count and (pa.types.is_primitive(column.type) or hasattr(column.type, "shape")):
        yield from _array_tokens(to_numpy(column), set())
        return
    sink = pa.BufferOutputStream()
    whole = pa.table({"value": column}).combine_chunks()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    yield from _bytes_tokens(np.frombuffer(sink.getvalue(), np.uint8))


def _function_tokens(value: types.FunctionType, seen: set[int]) -> Iterator[Any]:
    if _is_library(value.__module__, value.__code__.co_filename):
        yield f"{value.__module__}.{value.__qualname__}".encode()
        return
    yield from _code_tokens(value.__code__, seen)
    yield from _tokens([value.__defaults__, value.__kwdefaults__], seen=seen)
    for cell in value.__closure__ or ():
        yield from _tokens(_content(cell), seen=seen)
    for name in sorted(_global_names(value.__code__)):
        if name in value.__globals__:
            yield name.encode()
            yield from _tokens(value.__globals__[name], seen=seen)


def _code_tokens(code: types.CodeType, seen: set[int]) -> Iterator[Any]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount)).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_tokens(constant, seen)
        elif isinstance(constant, frozenset):
            yield from _set_tokens(constant, seen)
        else:
            yield repr(constant).encode()


def _global_names(code: types.CodeType) -> set[str]:
    nested = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*(_global_names(inner) for inner in nested))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is assigned after the function was made
        return None


def _method_tokens(value: types.MethodType, seen: set[int]) -> Iterator[Any]:
    yield from _tokens([value.__func__, value.__self__], seen=seen)


def _partial_tokens(value: functools.partial[Any], seen: set[int]) -> Iterator[Any]:
    yield from _tokens([value.func, value.args, value.keywords], seen=seen)


def _module_tokens(value: types.ModuleType, seen: set[int]) -> Iterator[Any]:
    yield f"{value.__name__}=={getattr(value, '__version__', '')}".encode()


def _builtin_tokens(value: Any, seen: set[int]) -> Iterator[Any]:
    yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}".encode()


def _class_tokens(value: type, seen: set[int]) -> Iterator[Any]:
    yield f"{value.__module__}.{value.__qualname__}".encode()
    if _is_library(value.__module__):
        return
    for name, member in sorted(vars(value).items()):
        if isinstance(member, types.FunctionType | classmethod | staticmethod | property):
            yield name.encode()
            inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            yield from _tokens(inner, seen=seen)


def _object_tokens(value: Any, seen: set[int]) -> Iterator[Any]:
    yield from _tokens(type(value), seen=seen)
    if hasattr(value, "__dict__"):
        yield from _tokens(vars(value), seen=seen)
    else:
        yield _ADDRESS.sub("", repr(value)).encode()


def _is_library(module: str | None, filename: str = "") -> bool:
    return (module or "").partition(".")[0] in _library_roots() or "site-packages" in filename


@functools.cache
def _library_roots() -> frozenset[str]:
    return frozenset({*sys.stdlib_module_names, "numpy", "torch", "pyarrow", "pandas", "polars", "trek"})


_Spelling = Callable[[Any, set[int]], Iterator[Any]]
_SPELLINGS: list[tuple[Any, _Spelling]] = [
    (list | tuple, _sequence_tokens),
    (set | frozenset, _set_tokens),
    (dict | types.MappingProxyType, _mapping_tokens),
    (np.ndarray, _array_tokens),
    (types.FunctionType, _function_tokens),
    (types.MethodType, _method_tokens),
    (functools.partial, _partial_tokens),
    (types.ModuleType, _module_tokens),
    (types.BuiltinFunctionType | types.MethodDescriptorType | np.ufunc, _builtin_tokens),
    (type, _class_tokens),
]


def source_name(function: Callable[..., Any]) -> str:
    """What a person would call `function`."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return name.rpartition("<locals>.")[2] if inspect.isroutine(function) else name
