"""Objects by content: a rule for each kind that needs one, and how an object would be copied for all others.

An object counts by its class and its state as `copy` and `pickle` see it, which every library that allows copying
provides; a printed form is never used. A class may define `__trek_fingerprint__` and return what counts in its place.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import io
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from trek.fingerprints import libraries
from trek.fingerprints.naming import type_name
from trek.fingerprints.ownership import is_project_class

if TYPE_CHECKING:
    from trek.fingerprints.reader import Reader

HOOK = "__trek_fingerprint__"
Rule = Callable[["Reader", Any, str], list[str]]
_PROTOCOL = 4


def spell(reader: Reader, value: Any, where: str) -> list[str]:
    """The tokens that stand for `value`."""
    kind = type(value)
    if hasattr(kind, HOOK):
        return [reader.spell(kind, where=where), reader.spell(reader.keep(getattr(value, HOOK)()), where=where)]
    for kinds, rule in _RULES:
        if isinstance(value, kinds):
            return [kind.__qualname__, *rule(reader, value, where)]
    return libraries.spell(reader, value, where) or _object(reader, value, where)


def _sequence(reader: Reader, value: Any, where: str) -> list[str]:
    if type(value) not in (list, tuple):
        return _object(reader, value, where)
    return [reader.spell(item, where=f"{where}[{index}]") for index, item in enumerate(value)]


def _set(reader: Reader, value: Any, where: str) -> list[str]:
    """Each member by a walk of its own, since their order is not defined."""
    if type(value) not in (set, frozenset):
        return _object(reader, value, where)
    tokens = []
    for item in value:
        inner = type(reader)()
        inner.read(item, label=f"{where} (a member)")
        tokens.append(repr(sorted(inner.parts.items())))
        reader.merge(inner)
    return sorted(tokens)


def _mapping(reader: Reader, value: Any, where: str) -> list[str]:
    """Keys in their order: a function may depend on it."""
    if type(value) not in (dict, types.MappingProxyType):
        return _object(reader, value, where)
    tokens = []
    for key, item in value.items():
        tokens += [reader.spell(key, where=f"a key of {where}"), reader.spell(item, where=f"{where}[{key!r:.40}]")]
    return tokens


def _path(reader: Reader, value: PurePath, where: str) -> list[str]:
    """A file or folder by its name, and by what it holds among the reader's files."""
    if not isinstance(value, Path):
        return [str(value)]
    reader.add_file(value, where=where)
    return [value.name]


def _enum_member(reader: Reader, value: enum.Enum, where: str) -> list[str]:
    own = {name: item for name, item in vars(value).items() if not name.startswith("_")}
    return [
        reader.spell(type(value), where=where),
        reader.spell(value._value_, where=where),
        reader.spell(own, where=where),
    ]


def _method(reader: Reader, value: types.MethodType, where: str) -> list[str]:
    return [reader.spell(value.__func__, where=where), reader.spell(value.__self__, where=f"{where} (its object)")]


def _builtin(reader: Reader, value: Any, where: str) -> list[str]:
    """A function written in C by its name; a method also by its object."""
    owner = getattr(value, "__self__", None)
    owner = getattr(value, "__objclass__", None) if owner is None else owner
    name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}"
    return [name, reader.spell(owner, where=f"{where} (its object)")]


def _property(reader: Reader, value: property, where: str) -> list[str]:
    return [reader.spell(function, where=where) for function in (value.fget, value.fset, value.fdel)]


def _bound_in_class(reader: Reader, value: Any, where: str) -> list[str]:
    return [reader.spell(value.__func__, where=where)]


def _cached_property(reader: Reader, value: functools.cached_property[Any], where: str) -> list[str]:
    return [reader.spell(value.func, where=where), str(value.attrname)]


def _lru_cache(reader: Reader, value: Any, where: str) -> list[str]:
    return [reader.spell(value.__wrapped__, where=where), reader.spell(value.cache_parameters(), where=where)]


def _slot(reader: Reader, value: Any, where: str) -> list[str]:
    return [value.__name__]


def _view(reader: Reader, value: Any, where: str) -> list[str]:
    return [reader.spell(list(value), where=where)]


def _memory(reader: Reader, value: memoryview, where: str) -> list[str]:
    return [value.format, str(value.shape), libraries.digest_bytes(value.tobytes())]


def _iterator(reader: Reader, value: Any, where: str) -> list[str]:
    """What a library's iterator will still give is not known without using it up."""
    return _object(reader, value, where) if is_project_class(type(value)) else reader.unknown_value(value, where)


def _private(reader: Reader, value: Any, where: str) -> list[str]:
    """Locks and weak references: what a library keeps for itself does not change a result."""
    return [type_name(type(value))] if reader.is_in_library else reader.unknown_value(value, where)


def _object(reader: Reader, value: Any, where: str) -> list[str]:
    try:
        reduced = _reduce(value)
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 - whatever a class raises to say that it cannot be copied
        return reader.unknown_value(value, where)
    if isinstance(reduced, str):
        return ["name", type_name(type(value)), str(getattr(value, "__module__", None)), reduced]
    make, arguments, state, items, pairs = (list(reduced) + [None] * 3)[:5]
    tokens = [reader.spell(type(value), where=where), reader.spell(make, where=where)]
    tokens.append(reader.spell(tuple(reader.keep(arguments)), where=where))
    tokens += _state(reader, reader.keep(state), where)
    tokens.append(reader.spell(None if items is None else list(items), where=where))
    tokens.append(reader.spell(None if pairs is None else dict(pairs), where=where))
    return tokens


def _reduce(value: Any) -> Any:
    reducer = copyreg.dispatch_table.get(type(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copying: nothing is copied here
        return reducer(value) if reducer is not None else value.__reduce_ex__(_PROTOCOL)


def _state(reader: Reader, state: Any, where: str) -> Iterator[str]:
    """Attributes by name, in the order of the names; any other state as a value."""
    if isinstance(state, tuple) and len(state) == 2 and all(isinstance(one, dict | None) for one in state):
        for one in state:
            yield from _state(reader, one or {}, where)
        return
    if type(state) is not dict or not all(isinstance(name, str) for name in state):
        yield reader.spell(state, where=where)
        return
    for name, value in sorted(state.items()):
        yield name
        yield reader.spell(value, where=f"{where}.{name}")


_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_RULES: list[tuple[Any, Rule]] = [
    (enum.Enum, _enum_member),
    (list | tuple, _sequence),
    (set | frozenset, _set),
    (dict | types.MappingProxyType, _mapping),
    (PurePath, _path),
    (types.MethodType, _method),
    (types.BuiltinFunctionType | types.MethodWrapperType | types.MethodDescriptorType, _builtin),
    (types.WrapperDescriptorType | types.ClassMethodDescriptorType, _builtin),
    (types.MemberDescriptorType | types.GetSetDescriptorType, _slot),
    (property, _property),
    (classmethod | staticmethod, _bound_in_class),
    (functools.cached_property, _cached_property),
    (functools._lru_cache_wrapper, _lru_cache),
    (type({}.keys()) | type({}.values()) | type({}.items()), _view),
    (memoryview, _memory),
    ((*_LOCKS, threading.local, weakref.ReferenceType, weakref.WeakSet), _private),
    ((weakref.WeakKeyDictionary, weakref.WeakValueDictionary), _private),
    (io.IOBase, _object),
    (types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType, _iterator),
    (Iterator, _iterator),
]
"""The first that fits is used; all others are spelled as they would be copied."""
