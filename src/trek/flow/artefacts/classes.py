"""The classes of stored dataclasses and named tuples: found by name, and only if they are such classes.

A class of the flow's own file cannot be imported by the process of a step, which must not run that file again: the
runner sends such classes along, and `give_classes` makes them known.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from trek.errors import InputError
from trek.fingerprints.naming import module_label

_given: dict[str, type] = {}


def give_classes(classes: Mapping[str, type]) -> None:
    """Make classes known that this process cannot import."""
    _given.update(classes)


def spell_class(kind: type) -> str:
    """The name by which `kind` is found again; InputError if it cannot be."""
    if "<locals>" in kind.__qualname__:
        raise InputError(
            f"a {kind.__qualname__} cannot be stored: its class is defined in a function. Define it in a module."
        )
    _given.setdefault(f"{kind.__module__}:{kind.__qualname__}", kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def find_class(spelling: str) -> type:
    """The class called `module:name`."""
    found = _given.get(spelling) or _imported(spelling)
    if not isinstance(found, type) or not (dataclasses.is_dataclass(found) or hasattr(found, "_fields")):
        module, _, name = spelling.partition(":")
        raise InputError(
            f"a stored value needs the dataclass {name!r} of module {module!r}, which is not there any more. "
            "Define it again, or run the step that returned it again with --from."
        )
    return found


def _imported(spelling: str) -> Any:
    module, _, name = spelling.partition(":")
    try:
        return functools.reduce(getattr, name.split("."), _module(module))
    except (ImportError, AttributeError):
        return None


def _module(name: str) -> ModuleType:
    """The module called `name`; the program itself if that is its file, which must not be run a second time."""
    program = sys.modules.get("__main__")
    if name not in sys.modules and program is not None and module_label(vars(program)) == name:
        return program
    return importlib.import_module(name)
