"""Lookup: where a module or a name of another project is here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trek.compat.names.module_names import ModuleNames

_UNKNOWN_MODULE, _UNKNOWN_NAME = "this module is not known here", "this name is not known here"


@dataclass(frozen=True)
class UsedName:
    """A name of another project in a script."""

    name: str
    line: int
    here: str | None
    """Where it is here; None if it is not."""
    note: str
    """What it is over; or why it is not here, and what to use instead."""

    @property
    def is_covered(self) -> bool:
        """Whether it exists here."""
        return self.here is not None


class Lookup:
    """The modules of some projects, whose packages count as known, and single modules of others beside them."""

    def __init__(self, projects: Iterable[ModuleNames], beside: Iterable[ModuleNames] = ()) -> None:
        own, others = list(projects), list(beside)
        self._roots = {one.original.partition(".")[0] for one in own}
        self._beside = {one.original for one in others}
        self._modules = {one.original: one for one in (*own, *others)}

    def is_known(self, module: str) -> bool:
        """Whether a module is of one of the projects."""
        return module.partition(".")[0] in self._roots or module in self._beside

    def has_module(self, module: str) -> bool:
        """Whether a module is described."""
        return module in self._modules

    def class_names(self, module: str) -> set[str]:
        """Names of a module that are classes and modules in one, of which the class is meant."""
        found = self._modules.get(module)
        return {name for name in found.covered if name[0].isupper()} if found is not None else set()

    def longest(self, words: list[str]) -> tuple[str, str] | None:
        """The module and the name in it that dotted words address; None if they are a module, or within none."""
        for length in range(len(words) - 1, 0, -1):
            module = ".".join(words[:length])
            if module in self._modules:
                return None if ".".join(words) in self._modules else (module, words[length])
        return None

    def module(self, name: str, line: int) -> UsedName:
        """A module, or a package of described ones."""
        if name in self._modules:
            found = self._modules[name]
            return UsedName(name, line, found.here, "" if found.here else _reason(found, "*"))
        inner = [one.here or "" for one in self._modules.values() if one.original.startswith(f"{name}.")]
        if any(here.startswith(f"trek.compat.{name}.") for here in inner):
            return UsedName(name, line, f"trek.compat.{name}", "")
        return UsedName(name, line, None, "import the modules in it instead" if inner else _UNKNOWN_MODULE)

    def name(self, module: str, name: str, line: int) -> UsedName:
        """A name of a module."""
        found, whole = self._modules.get(module), f"{module}.{name}"
        if found is not None and name in found.covered:
            return UsedName(whole, line, f"{found.here}.{name}", f"over {found.covered[name]}")
        if whole in self._modules:
            return self.module(whole, line)
        if found is not None and name == "*" and found.here:
            return UsedName(whole, line, f"{found.here}.*", "")
        return UsedName(whole, line, None, _reason(found, name) if found else _UNKNOWN_MODULE)


def _reason(found: ModuleNames, name: str) -> str:
    return found.missing.get(name) or found.missing.get("*") or _UNKNOWN_NAME
