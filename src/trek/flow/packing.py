"""Packing functions and arguments of steps for worker processes. What comes from outside is never unpacked this way."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from trek.engines.pickling import pickled_by_value, travels_by_value
from trek.errors import InputError
from trek.flow.artefacts import Stored
from trek.flow.artefacts.classes import find_class
from trek.flow.artefacts.stored import find_part_kind
from trek.flow.graph import FunctionWork, MapWork, Reference, Step, Text, substitute
from trek.flow.tasks import Task


def pack_function(function: Callable[..., Any], name: str) -> bytes:
    """The function of the step called `name`."""
    return _pack(function, what=f"the function of step {name!r}")


def pack_arguments(task: Task) -> bytes:
    """Positional and keyword arguments of a task, and the classes of dataclasses in the artefacts among them."""
    args, kwargs = task.values["args"], task.values["kwargs"]
    arguments = args, kwargs, dict(_classes_in((args, kwargs)))
    return _pack(arguments, what=f"the arguments of step {task.step.name!r}")


def check_sendable(steps: Sequence[Step]) -> None:
    """Refuse functions and arguments that cannot be sent to another process, before any step runs."""
    known: set[int] = set()
    for step in steps:
        if not isinstance(step.work, FunctionWork | MapWork):
            continue
        if id(step.work.function) not in known:
            known.add(id(step.work.function))
            _check_lookups(step.work.function, step.name)
            pack_function(step.work.function, step.name)
        args = step.work.args if isinstance(step.work, FunctionWork) else ()
        for name, value in [*enumerate(args), *step.work.kwargs.items()]:
            _check_argument(value, what=f"argument {name!r} of step {step.name!r}")


def _check_lookups(function: Any, name: str) -> None:
    """Refuse a function that looks names up in a module which does not travel with it."""
    if isinstance(function, FunctionType) and travels_by_value(function):
        for one in _own_functions(function, {}):
            if "globals" in _names(one.__code__) and "globals" not in one.__globals__:
                raise InputError(
                    f"the function of step {name!r} calls globals() in {one.__qualname__!r}: in the step's process, "
                    "its module has only what the function names. Name what it needs, or move it to an imported module."
                )


def _own_functions(function: FunctionType, found: dict[int, FunctionType]) -> list[FunctionType]:
    """The function, and those of its module that it calls by their names, directly or not."""
    if id(function) not in found:
        found[id(function)] = function
        for used in _names(function.__code__):
            other = function.__globals__.get(used)
            if isinstance(other, FunctionType) and other.__module__ == function.__module__:
                _own_functions(other, found)
    return list(found.values())


def _names(code: CodeType) -> set[str]:
    """The global names that the code and the functions written in it use."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    return own.union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _check_argument(value: Any, *, what: str) -> None:
    """What can be stored can be sent; the rest is tried, without what earlier steps will give."""
    if isinstance(value, Reference | Text):
        return
    written = substitute(value, lambda reference: None)
    if find_part_kind(written) is None:
        _pack(written, what=what)


def _classes_in(value: Any) -> Iterator[tuple[str, type]]:
    """The classes that stored values in `value` need, by name."""
    if isinstance(value, Stored):
        for spelling in value.facts.get("classes", ()):
            yield spelling, find_class(spelling)
        yield from _classes_in(value.facts.get("parts", ()))
    elif type(value) is dict:
        yield from _classes_in(list(value.values()))
    elif type(value) in (list, tuple):
        for inner in value:
            yield from _classes_in(inner)


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
