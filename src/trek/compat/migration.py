"""Which names of other projects a script uses, and its import lines changed to those here. Pure, from the syntax tree.

Runs and imports nothing of the script. Reading and writing files is left to `trek migrate`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from trek.compat.import_lines import Edit, SourceText
from trek.compat.names import PROJECTS
from trek.compat.names.lookup import Lookup, UsedName
from trek.compat.names.stand_ins import STAND_INS, StandIn
from trek.errors import InputError

_PROJECTS = [one for names in PROJECTS.values() for one in names]


@dataclass(frozen=True)
class Migration:
    """What a script uses, and its text with changed import lines."""

    names: list[UsedName] = field(default_factory=list)
    changes: list[Edit] = field(default_factory=list)
    text: str = ""


def migrate(text: str, *, file: str = "script") -> Migration:
    """Inspect a script; InputError if it is not valid Python."""
    tree, source = _parsed(text, file), SourceText(text)
    lookup = Lookup(_PROJECTS, beside=[one.module for one in STAND_INS if _stands_in(one, tree)])
    used = sorted({*_imported(tree, lookup), *_attributes(tree, lookup)}, key=lambda one: (one.line, one.name))
    edits = sorted(_edits(tree, source, lookup), key=lambda edit: edit.start)
    return Migration(used, edits, source.edited(edits))


def _parsed(text: str, file: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the script's own literals, which are not our business
            return ast.parse(text, filename=file)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{file} is not valid Python: {error}. Correct it, or name other files.") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{file} is nested too deeply to be read. Name other files.") from None


def _stands_in(one: StandIn, tree: ast.Module) -> bool:
    """Whether a script needs what stands in for a module."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    absolute = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    packages = {name.partition(".")[0] for name in plain | absolute}
    has_text = one.text is None or any(isinstance(node, ast.Constant) and node.value == one.text for node in nodes)
    return has_text and bool(packages & one.packages)


def _imported(tree: ast.Module, lookup: Lookup) -> Iterator[UsedName]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if lookup.is_known(alias.name):
                    yield _plainly_imported(alias, node.lineno, lookup)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and lookup.is_known(node.module):
            for alias in node.names:
                yield lookup.name(node.module, alias.name, node.lineno)


def _attributes(tree: ast.Module, lookup: Lookup) -> Iterator[UsedName]:
    """Names that are reached through an imported module: `det.pytorch.Trainer`."""
    bound = _bound_modules(tree, lookup)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner and (chain := _chain(node)) is not None:
            root, *rest = chain
            if root in bound:
                found = lookup.longest([*bound[root].split("."), *rest])
                if found is not None:
                    yield lookup.name(*found, node.lineno)


def _bound_modules(tree: ast.Module, lookup: Lookup) -> dict[str, str]:
    """Modules of other projects by the name that the script has for them."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if lookup.is_known(alias.name):
                    bound[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if lookup.has_module(whole) and alias.name not in lookup.class_names(node.module):
                    bound[alias.asname or alias.name] = whole
    return bound


def _chain(node: ast.expr) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := _chain(node.value)) is not None:
        return [*before, node.attr]
    return None


def _plainly_imported(alias: ast.alias, line: int, lookup: Lookup) -> UsedName:
    found = lookup.module(alias.name, line)
    if found.here is None or alias.asname or _is_same_path(alias.name, found.here):
        return found
    short = alias.name.rpartition(".")[2]
    note = f"it has another path here: write `import {alias.name} as {short}`, and use {short}"
    return UsedName(alias.name, line, None, note)


def _edits(tree: ast.Module, source: SourceText, lookup: Lookup) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            target = _target(node.module, lookup)
            if target is not None:
                yield from source.from_module(node, target)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                target = _target(alias.name, lookup)
                if target is not None and (alias.asname or _is_same_path(alias.name, target)):
                    yield from source.imported(alias, target if alias.asname else _bare(alias.name, target))


def _target(module: str, lookup: Lookup) -> str | None:
    return lookup.module(module, 0).here if lookup.is_known(module) else None


def _is_same_path(name: str, target: str) -> bool:
    """Whether `a.b` reaches the module here as it did there, once `a` is a name for `trek.compat.a`."""
    return target == f"trek.compat.{name}"


def _bare(name: str, target: str) -> str:
    """`import a.b` binds `a`; so does this, and `a.b` is loaded too."""
    root = name.partition(".")[0]
    if "." not in name:
        return f"{target} as {root}"
    return f"{target}, trek.compat.{root} as {root}"
