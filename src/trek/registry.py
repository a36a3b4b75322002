"""Registry: the variants of a family by name, those of other packages included.

A family (engines, strategies, searchers, loggers …) lists its own variants as `module:attribute`; another package adds
one by an entry point in the group `trek.<family>`. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, ParamSpec, TypeVar

from trek.distribution import package_missing
from trek.errors import ConfigError, InputError

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)


class Registry(Generic[T]):
    """The variants of one family.

    `extras` names, for a variant that stands on an optional package, that package and the extra of Trek it comes with.
    `base`, as `module:attribute`, is the class that every plug-in must be, derive from or be an instance of.
    """

    def __init__(
        self,
        family: str,
        own: Mapping[str, str],
        *,
        word: str,
        extras: Mapping[str, str] | None = None,
        base: str | None = None,
    ) -> None:
        self.family = family
        self._own = dict(own)
        self._word = word
        self._extras = dict(extras or {})
        self._base = base

    def names(self) -> list[str]:
        """Every name that can be asked for, in alphabetical order."""
        return sorted({*self._own, *self._plugins})

    def in_order(self) -> list[str]:
        """Every name: Trek's own in the order in which the family lists them, then those of other packages."""
        return [*self._own, *self.plugin_names()]

    def plugin_names(self) -> list[str]:
        """The names of other packages' variants, in alphabetical order."""
        return sorted(self._plugins)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._plugins

    def check(self, name: str) -> str:
        """`name`, if there is such a variant; imports nothing."""
        if not isinstance(name, str) or name not in self:
            near = difflib.get_close_matches(str(name), self.names(), n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise ConfigError(f"{self._word} {name!r} does not exist. {hint}Use one of: {', '.join(self.names())}.")
        return name

    def load(self, name: str) -> T:
        """The variant called `name`, imported."""
        if self.check(name) not in self._own:
            return self._load_plugin(name)
        try:
            return _attribute(self._own[name])  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            extra = self._extras.get(name)
            if extra is None or error.name != extra:
                raise
            raise package_missing(f"{self._word} {name!r}", extra, extra=extra) from error

    def check_settings(self, name: str, settings: Mapping[str, Any], *, taken_by: Callable[..., Any]) -> None:
        """Refuse settings of the variant `name` that are not keywords of `taken_by`, the function they are for."""
        parameters = inspect.signature(taken_by).parameters.values()
        known = [one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
        for setting in settings:
            if setting not in known:
                raise ConfigError(
                    f"{self._word} {name!r} has no setting {setting!r}. It has: {', '.join(known) or 'none'}."
                )

    def refresh(self) -> None:
        """Read the entry points again: a package was installed while this process runs."""
        vars(self).pop("_plugins", None)

    def _load_plugin(self, name: str) -> T:
        first, *others = self._plugins[name]
        if others:
            packages = " and ".join(_distribution(point) for point in (first, *others))
            raise InputError(f"{self._word} {name!r} is provided by {packages}. Remove all of them but one.")
        try:
            loaded: Any = first.load()
        except Exception as error:
            raise InputError(
                f"{self._word} {name!r} is provided by {_distribution(first)}, and cannot be imported from "
                f"{first.value!r}: {error}. Update or remove that package."
            ) from error
        self._require_base(loaded, first)
        return loaded  # type: ignore[no-any-return]

    def _require_base(self, loaded: Any, point: EntryPoint) -> None:
        base = object if self._base is None else _attribute(self._base)
        if isinstance(loaded, base) or (isinstance(loaded, type) and issubclass(loaded, base)):
            return
        raise InputError(
            f"{self._word} {point.name!r} is provided by {_distribution(point)}, but {point.value!r} is not a "
            f"{base.__module__}.{base.__qualname__}. Update or remove that package."
        )

    @cached_property
    def _plugins(self) -> dict[str, list[EntryPoint]]:
        """By name; Trek's own variants cannot be replaced."""
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=f"trek.{self.family}"):
            if point.name not in self._own:
                found.setdefault(point.name, []).append(point)
            else:
                logger.warning(
                    "%s offers the %s %r, which is a name of Trek's own: ignored", _distribution(point), self._word,
                    point.name,
                )  # fmt: skip
        return found


def _attribute(address: str) -> Any:
    module, _, attribute = address.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _distribution(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else "an installed package"


def takes_fields_of(settings: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function whose `**keywords` are the fields of `settings`, so that they are declared only there.

    `help` and `Registry.check_settings` show them with their defaults.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        names = {one.name for one in own}
        fields = [one for one in inspect.signature(settings).parameters.values() if one.name not in names]
        keywords = [one.replace(kind=one.KEYWORD_ONLY) for one in fields]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return function

    return decorate
