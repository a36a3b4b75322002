"""Which names of other projects a script uses, and its import lines changed to those here. Pure, from the syntax tree.

Runs and imports nothing of the script. Reading and writing files is left to `trek migrate`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trek.compat.names import PROJECTS, ModuleNames
from trek.errors import InputError

_MODULES: dict[str, ModuleNames] = {one.original: one for names in PROJECTS.values() for one in names}
_ROOTS = {name.partition(".")[0] for name in _MODULES}


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


@dataclass(frozen=True)
class Change:
    """Text of one line to replace."""

    line: int
    old: str
    new: str


@dataclass(frozen=True)
class Migration:
    """What a script uses, and its text with changed import lines."""

    names: list[UsedName] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    text: str = ""


def migrate(text: str, *, file: str = "script") -> Migration:
    """Inspect a script; InputError if it is not valid Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{file} is not valid Python: {error}.") from None
    used = sorted({*_imported(tree), *_attributes(tree)}, key=lambda one: (one.line, one.name))
    lines = text.splitlines(keepends=True)
    changes = [change for node in ast.walk(tree) for change in _changes(node, lines)]
    changes.sort(key=lambda change: change.line)
    return Migration(used, changes, _applied(lines, changes))


def _imported(tree: ast.Module) -> Iterator[UsedName]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_known(alias.name):
                    yield _module(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and _is_known(node.module):
            for alias in node.names:
                yield _name(node.module, alias.name, node.lineno)


def _attributes(tree: ast.Module) -> Iterator[UsedName]:
    """Names that are reached through an imported module: `det.pytorch.Trainer`."""
    bound = _bound_modules(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner and (chain := _chain(node)) is not None:
            root, *rest = chain
            if root in bound:
                found = _longest([*bound[root].split("."), *rest])
                if found is not None:
                    yield _name(*found, node.lineno)


def _bound_modules(tree: ast.Module) -> dict[str, str]:
    """Modules of other projects by the name that the script has for them."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_known(alias.name):
                    bound[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in _MODULES and alias.name not in _class_names(node.module):
                    bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def _class_names(module: str) -> set[str]:
    """Names of a module that are classes and modules in one, of which the class is meant."""
    return {name for name in _MODULES[module].covered if name[0].isupper()} if module in _MODULES else set()


def _chain(node: ast.expr) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := _chain(node.value)) is not None:
        return [*before, node.attr]
    return None


def _longest(words: list[str]) -> tuple[str, str] | None:
    """The module and the name in it that dotted words address; None if they are a module, or within none."""
    for length in range(len(words) - 1, 0, -1):
        module = ".".join(words[:length])
        if module in _MODULES:
            return None if ".".join(words) in _MODULES else (module, words[length])
    return None


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in _ROOTS


def _module(name: str, line: int) -> UsedName:
    if name in _MODULES:
        found = _MODULES[name]
        return UsedName(name, line, found.here, "" if found.here else _reason(found, "*"))
    if any(known.startswith(f"{name}.") for known in _MODULES):
        return UsedName(name, line, f"trek.compat.{name}", "")
    return UsedName(name, line, None, "this module is not known here")


def _name(module: str, name: str, line: int) -> UsedName:
    found, whole = _MODULES.get(module), f"{module}.{name}"
    if found is not None and name in found.covered:
        return UsedName(whole, line, f"{found.here}.{name}", f"over {found.covered[name]}")
    if whole in _MODULES:
        return _module(whole, line)
    if found is not None and name == "*" and found.here:
        return UsedName(whole, line, f"{found.here}.*", "")
    return UsedName(whole, line, None, _reason(found, name) if found else "this module is not known here")


def _reason(found: ModuleNames, name: str) -> str:
    return found.missing.get(name) or found.missing.get("*") or "this name is not known here"


def _changes(node: ast.AST, lines: list[str]) -> Iterator[Change]:
    if isinstance(node, ast.ImportFrom) and not node.level and node.module and _is_known(node.module):
        target = _target(node.module)
        if target is not None:
            yield from _replaced(lines, node, rf"(from\s+){re.escape(node.module)}(?=\s+import\b)", rf"\g<1>{target}")
    elif isinstance(node, ast.Import):
        for alias in node.names:
            target = _target(alias.name) if _is_known(alias.name) else None
            if target is not None:
                new = target if alias.asname else _bare(alias.name, target)
                yield from _replaced(lines, node, rf"(?<![\w.]){re.escape(alias.name)}(?![\w.])", new)


def _target(module: str) -> str | None:
    return _module(module, 0).here


def _bare(name: str, target: str) -> str:
    """`import a.b` binds `a`; so does this, and `a.b` is loaded too."""
    root = name.partition(".")[0]
    if "." not in name:
        return f"{target} as {root}"
    return f"{target}, trek.compat.{root} as {root}"


def _replaced(lines: list[str], node: ast.stmt, pattern: str, new: str) -> Iterator[Change]:
    """The first match in the lines of a statement."""
    for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        old = lines[number - 1]
        found = re.search(pattern, old)
        if found:
            yield Change(number, found[0], found.expand(new) if "\\" in new else new)
            return


def _applied(lines: list[str], changes: list[Change]) -> str:
    made = list(lines)
    for change in changes:
        made[change.line - 1] = made[change.line - 1].replace(change.old, change.new, 1)
    return "".join(made)
