"""Calls the methods of a Trial with those arguments that they declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from trek.errors import EntrypointError


def with_declared_arguments(method: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    """Wrap `method` so that it is called with all arguments `names`, by position, and gets those that it declares.

    A parameter of another name gets the argument at its position, unless it has a default: then it is the method's own
    and keeps the default.
    """
    positions, keywords = _assign(method, names)
    if keywords:
        return lambda *args: method(*[args[i] for i in positions], **{name: args[i] for name, i in keywords.items()})
    if positions == list(range(len(names))):
        return method
    return lambda *args: method(*[args[i] for i in positions])


def _assign(method: Callable[..., Any], names: tuple[str, ...]) -> tuple[list[int], dict[str, int]]:
    """Which of the arguments `names` to pass by position, and which by keyword."""
    positions: list[int] = []
    keywords: dict[str, int] = {}
    is_in_order = True  # until a parameter is left out, further ones can be passed by position
    parameters = inspect.signature(method).parameters
    for place, one in enumerate(parameters.values()):
        is_positional = one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        if one.kind is one.VAR_POSITIONAL:
            positions.extend(range(place, len(names)) if is_in_order else ())
        elif one.kind is one.VAR_KEYWORD:
            taken = {*positions, *keywords.values()}
            keywords.update({name: i for i, name in enumerate(names) if i not in taken})
        elif one.name in names or (one.default is one.empty and is_positional and place < len(names)):
            index = names.index(one.name) if one.name in names else place
            if is_in_order and is_positional:
                positions.append(index)
            else:
                keywords[one.name] = index
        elif one.default is not one.empty:
            is_in_order = False
        else:
            raise EntrypointError(
                f"{method.__qualname__} may take only {', '.join(names)}, got {', '.join(parameters)}. "
                "Give a parameter of its own a default."
            )
    return positions, keywords
