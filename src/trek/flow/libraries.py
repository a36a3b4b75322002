"""Libraries: what the modules of a flow's steps import beside each other. Workers import it once, before they fork.

Reads what this process has imported; imports nothing.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any


def libraries_of(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """Names of the libraries that the modules of `functions`, and the project's modules behind them, import."""
    names = {getattr(getattr(function, "func", function), "__module__", None) or "" for function in functions}
    stack = [module for name in sorted(names) if (module := sys.modules.get(name)) is not None]
    seen: set[str] = set()
    found: dict[str, None] = {}
    while stack:
        module = stack.pop()
        if _is_library(module):
            found[module.__name__] = None
        elif module.__name__ not in seen:
            seen.add(module.__name__)
            stack.extend(_imported_by(module))
    return sorted(found)


def _imported_by(module: ModuleType) -> list[ModuleType]:
    """Modules that `module` holds; of what it took from other modules, a library's package and a project's module."""
    found = []
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            found.append(value)
        elif isinstance(value, type | FunctionType | BuiltinFunctionType):
            name = getattr(value, "__module__", None) or ""
            owner = sys.modules.get(name)
            package = sys.modules.get(name.partition(".")[0])
            if owner is not None and package is not None:
                found.append(package if _is_library(package) else owner)
    return found


def _is_library(module: ModuleType) -> bool:
    """Whether it is Python's, Trek's or an installed package's: not a module of the user's project."""
    root = module.__name__.partition(".")[0]
    if root == "__main__":
        return False
    if root == "trek" or root in sys.stdlib_module_names:
        return True
    file = getattr(module, "__file__", None)
    return file is not None and any(Path(file).is_relative_to(folder) for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    return tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
