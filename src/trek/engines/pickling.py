"""Pickling for processes that this program starts itself: code that they could not import travels by value.

Nothing is unpickled here, and nothing that comes from outside is ever pickled code.
"""

from __future__ import annotations

import copyreg
import functools
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_registering = threading.Lock()
"""cloudpickle's list of modules belongs to the process: one block at a time may change it."""


_never_imported: weakref.WeakSet[ModuleType] = weakref.WeakSet()


def never_import_elsewhere(module: ModuleType) -> None:
    """Let the code of `module` travel by value, though it may be importable: importing it would do more than define."""
    _never_imported.add(module)


@contextmanager
def pickled_by_value(*origins: Any, modules: Iterable[ModuleType] = ()) -> Iterator[None]:
    """A block in which cloudpickle takes along the code of functions and classes of the modules of `origins`.

    Only of modules that another process would not find by name, such as a notebook's or a file's beside the path, and
    of all those given to `never_import_elsewhere`; and of `modules`.
    """
    import cloudpickle

    _teach_copying()
    found = {sys.modules.get(getattr(origin, "__module__", None) or "") for origin in origins}
    with _registering:
        known = cloudpickle.list_registry_pickle_by_value()
        loose = {one for one in found if one is not None and not is_importable(one)}
        chosen = [one for one in loose | set(_never_imported) | set(modules) if one.__name__ not in known]
        for module in chosen:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in chosen:
                cloudpickle.unregister_pickle_by_value(module)


def travels_by_value(function: Any) -> bool:
    """Whether the code of `function` is taken along, without those globals of its module that it does not name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return module is None or module.__name__ == "__main__" or module in _never_imported or not is_importable(module)


def own_modules() -> list[ModuleType]:
    """The modules of the user's own program, which another machine may not have: not installed, and not Trek's."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    foreign = (*(f"{one}/" for one in installed), f"{Path(__file__).parents[1]}/")
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name == getattr(module, "__name__", "") != "__main__" and not str(file).startswith(foreign):
            found.append(module)
    return found


@functools.cache
def _teach_copying() -> None:
    """Let cached properties and functions by single dispatch travel by value, neither of which Python can copy."""
    copyreg.pickle(functools.cached_property, _reduce_cached_property)
    copyreg.pickle(weakref.WeakKeyDictionary, _reduce_weak_dict)


def _reduce_cached_property(value: functools.cached_property[Any]) -> Any:
    return _make_cached_property, (value.func, value.attrname)


def _make_cached_property(function: Any, name: str | None) -> functools.cached_property[Any]:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _reduce_weak_dict(value: weakref.WeakKeyDictionary[Any, Any]) -> Any:
    return weakref.WeakKeyDictionary, (dict(value),)


def is_importable(module: ModuleType) -> bool:
    """Whether a new process with this one's `sys.path` would find this very module under its name."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return True  # built in; or handled by cloudpickle itself
    folders: list[str] | None = None
    spec = None
    for part in module.__name__.split("."):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return False
        folders = list(spec.submodule_search_locations or [])
    return spec is not None and spec.origin == file
