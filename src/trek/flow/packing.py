"""Packing functions and arguments of steps for worker processes. What comes from outside is never unpacked this way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trek.engines.pickling import pickled_by_value
from trek.errors import InputError
from trek.flow.tasks import Task


def pack_function(function: Callable[..., Any], name: str) -> bytes:
    """The function of the step called `name`."""
    return _pack(function, what=f"the function of step {name!r}")


def pack_arguments(task: Task) -> bytes:
    """Positional and keyword arguments of a task."""
    arguments = task.values["args"], task.values["kwargs"]
    return _pack(arguments, what=f"the arguments of step {task.step.name!r}")


def _pack(value: Any, *, what: str) -> bytes:
    import cloudpickle

    try:
        with pickled_by_value(value):
            packed: bytes = cloudpickle.dumps(value)
    except Exception as error:  # the user's objects may raise anything when they are pickled
        raise InputError(
            f"{what} cannot be sent to another process: {error}. Use values and functions that can be pickled."
        ) from error
    return packed
