"""Names of code: what a person calls a function, and by which module's name its code is known."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def source_name(function: Callable[..., Any]) -> str:
    """What a person would call `function`."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return name.rpartition("<locals>.")[2] if inspect.isroutine(function) else name


def module_label(namespace: Mapping[str, Any]) -> str:
    """The name of the module with these globals.

    A module that stands alone is called by its file, so that a script is the same whether it is run or imported. A
    notebook has no file: its cells' own names change with every edit.
    """
    name = str(namespace.get("__name__") or "?")
    file = namespace.get("__file__")
    return name if "." in name or not isinstance(file, str) else Path(file).stem


def type_name(kind: type) -> str:
    """The full name of a class, as in an error message."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
