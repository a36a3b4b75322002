"""Packing functions and arguments for processes of our own. What comes from outside is never unpacked this way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from trek.errors import InputError
from trek.flow.tasks import Task


def pack_function(function: Callable[..., Any], name: str) -> bytes:
    """The function of the step called `name`, for a process of our own."""
    return _pack(function, what=f"the function of step {name!r}")


def pack_arguments(task: Task) -> bytes:
    """Positional and keyword arguments of a task, for a process of our own."""
    arguments = task.values["args"], task.values["kwargs"]
    return _pack(arguments, what=f"the arguments of step {task.step.name!r}")


def _pack(value: Any, *, what: str) -> bytes:
    """Pickle for a process of our own; by value what only this process knows, such as functions of a script."""
    import cloudpickle

    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is not None and not _is_importable(module):
        cloudpickle.register_pickle_by_value(module)
    try:
        packed: bytes = cloudpickle.dumps(value)
    except Exception as error:  # whatever the user's objects raise when they are packed
        raise InputError(f"{what} cannot be sent to another process: {error}. Keep to data and functions.") from error
    return packed


def _is_importable(module: ModuleType) -> bool:
    """Whether a new process with our `sys.path` would find this very module under its name."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return True  # built in; or cloudpickle's own affair
    folders: list[str] | None = None
    for part in module.__name__.split("."):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return False
        folders = list(spec.submodule_search_locations or [])
    return spec is not None and spec.origin == file
