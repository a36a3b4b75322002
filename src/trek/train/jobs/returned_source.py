"""What the source of a train function says about its result, read before anything is trained.

Finds what is certain: a function that trains nothing when it is called, and a `return` of what cannot be sent between
processes. Everything else is seen when the function has returned; see `returned`. Loads no torch.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trek.errors import InputError

_NEW_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def check_source(train_fn: Callable[..., Any]) -> None:
    """Raise `InputError` if calling `train_fn` cannot train, or if it returns what cannot be sent."""
    function: Any = train_fn
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    name = getattr(function, "__name__", "train_fn")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(
            f"{name} is a generator function, which does nothing when it is called, because it has a yield. Return a "
            "list instead, or log values with tr.log."
        )
    if inspect.iscoroutinefunction(function):
        raise InputError(f"{name} is an async function, which does nothing when it is called. Define it with def.")
    for what, line in _refused_returns(function):
        raise InputError(
            f"{name} returns {what} in line {line} of {inspect.getsourcefile(function)}, which cannot be sent between "
            "processes. Return numbers, text, bytes, tensors, arrays, DataFrames, or lists and dicts of them."
        )


def _refused_returns(function: Any) -> Iterator[tuple[str, int]]:
    """What is returned that is no data, with its line; nothing where there is no source."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    defined = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    for node in _own_nodes(defined.body) if defined is not None else ():
        if isinstance(node, ast.Return) and node.value is not None:
            for what, value in _parts(node.value):
                yield what, first + value.lineno - 1


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes in it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _NEW_SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def _parts(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The parts of what is returned that are a function, a generator or a file."""
    if isinstance(value, ast.Tuple | ast.List):
        for one in value.elts:
            yield from _parts(one)
    elif isinstance(value, ast.Dict):
        for one in value.values:
            yield from _parts(one)
    elif isinstance(value, ast.Lambda):
        yield "a lambda", value
    elif isinstance(value, ast.GeneratorExp):
        yield "a generator", value
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "open":
        yield "an open file", value
