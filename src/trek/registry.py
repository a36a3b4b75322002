"""Registry: the variants of a family by name, those of other packages included.

A family (engines, strategies, searchers, loggers …) lists its own variants as `module:attribute`; another package adds
one by an entry point in the group `trek.<family>`. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from trek.errors import ConfigError, InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """The variants of one family.

    `extras` names, for a variant that stands on an optional package, that package and the extra of Trek it comes with.
    """

    def __init__(
        self, family: str, own: Mapping[str, str], *, word: str, extras: Mapping[str, str] | None = None
    ) -> None:
        self.family = family
        self._own = dict(own)
        self._word = word
        self._extras = dict(extras or {})

    def names(self) -> list[str]:
        """Every name that can be asked for, in alphabetical order."""
        return sorted({*self._own, *self._plugins})

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._plugins

    def check(self, name: str) -> str:
        """`name`, if there is such a variant; imports nothing."""
        if name not in self:
            raise ConfigError(f"{self._word} {name!r} does not exist. Use one of: {', '.join(self.names())}.")
        return name

    def load(self, name: str) -> T:
        """The variant called `name`, imported."""
        if self.check(name) not in self._own:
            return self._load_plugin(name)
        module, _, attribute = self._own[name].partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            extra = self._extras.get(name)
            if extra is None or error.name != extra:
                raise
            raise InputError(
                f"{self._word} {name!r} needs the package {extra}, which is not installed. "
                f"Run `pip install 'trek[{extra}]'`."
            ) from error

    def _load_plugin(self, name: str) -> T:
        point = self._plugins[name]
        try:
            loaded: Any = point.load()
        except Exception as error:
            raise InputError(
                f"{self._word} {name!r} is provided by {_distribution(point)}, and cannot be imported from "
                f"{point.value!r}: {error}. Update or remove that package."
            ) from error
        return loaded  # type: ignore[no-any-return]

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        """By name; Trek's own variants cannot be replaced."""
        found = entry_points(group=f"trek.{self.family}")
        return {point.name: point for point in found if point.name not in self._own}


def _distribution(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else "an installed package"
