"""Ownership: whether code is of the user's project, which counts by content, or of a library, which counts by name."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path, PurePath
from typing import Any

_IS_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made while the program runs, as opposed to types written in C
_OWN_FOLDER = Path(__file__).resolve().parents[1]


def is_project_file(module: str | None, file: str | None) -> bool:
    """Whether code of this module and file is the project's: not the standard library, not installed, not Trek."""
    top = (module or "").partition(".")[0]
    if not file or file.startswith("<"):
        return top == "__main__" or (top not in sys.stdlib_module_names and top != "trek")
    path = PurePath(file)
    is_installed = "site-packages" in path.parts or "dist-packages" in path.parts
    return not is_installed and not any(path.is_relative_to(folder) for folder in _library_folders())


def is_project_module(module: types.ModuleType) -> bool:
    """Whether `module` is the project's. A namespace package has no file; the folders it spans tell."""
    file = getattr(module, "__file__", None)
    if file is None and (folders := list(getattr(module, "__path__", ()))):
        file = folders[0]
    return is_project_file(module.__name__, file)


def is_project_function(function: types.FunctionType) -> bool:
    """Whether the code of `function` is the project's; decorators copy the name of a module, not the code."""
    return is_project_file(function.__globals__.get("__name__"), function.__code__.co_filename)


def is_project_class(kind: type) -> bool:
    """Whether `kind` is the project's: one that a library made for it while running is."""
    is_static = not kind.__flags__ & _IS_HEAP_TYPE
    return not is_static and not is_library_name(kind.__module__, kind.__qualname__, kind)


def is_library_name(module: str | None, qualname: str, value: Any) -> bool:
    """Whether `value` is what a loaded library calls by this name."""
    found: Any = sys.modules.get(module or "")
    if found is None or is_project_module(found):
        return False
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found is value


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    real = {str(Path(folder).resolve()) for folder in folders}
    return tuple({*folders, *real, str(_OWN_FOLDER)})
