"""Sources: whole Python files by their syntax, and the project's files that they import. Runs and imports nothing."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trek.fingerprints.contents import digest_path, digest_text
from trek.fingerprints.ownership import is_project_file

_MAX_NAME = 255
_SUFFIXES = (".py", *importlib.machinery.EXTENSION_SUFFIXES)


class Imported(NamedTuple):
    """A module that is imported: its full name, and the names taken from it, which may be modules too."""

    name: str
    taken: tuple[str, ...] = ()


class SourceReader:
    """Collects files by the names of their modules, each once; `folders` are searched before Python's own path."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.parts: dict[str, str] = {}
        self.unknown: list[str] = []
        self._folders = folders
        self._later: deque[tuple[Path, str]] = deque()
        self._is_reading = False

    def read_import(self, imported: Imported, *, importer: str = "", is_search_path_changed: bool = False) -> None:
        """Add a module of the project, its packages, and what is taken from it, where that is a module too."""
        pieces = imported.name.split(".")
        packages = [".".join(pieces[: count + 1]) for count in range(len(pieces))]
        is_found = [self._note_module(name) for name in packages][-1]
        for name in imported.taken:
            self._note_module(f"{imported.name}.{name}")
        if is_search_path_changed and not is_found and not _is_library(pieces[0]):
            self.unknown.append(f"module {imported.name}, which {importer} imports after changing sys.path")
        self._read_noted()

    def read_file(self, path: Path, *, label: str) -> None:
        """Add a source file, and what it imports of the project."""
        self._later.append((path, label))
        self._read_noted()

    def _read_noted(self) -> None:
        """Read files one after the other: they may import each other to any depth."""
        if self._is_reading:
            return
        self._is_reading = True
        while self._later:
            path, label = self._later.popleft()
            if label not in self.parts:
                self._read_one(path, label)
        self._is_reading = False

    def _read_one(self, path: Path, label: str) -> None:
        try:
            content = path.read_bytes()
            tree = without_docstrings(ast.parse(content))
        except (OSError, SyntaxError, ValueError):  # it will fail when it is run, and say so better
            self.parts[label] = digest_path(path)
            return
        self.parts[label] = digest_text(ast.dump(tree))
        package = label if path.name == "__init__.py" else label.rpartition(".")[0]
        self._follow(tree, package=package, importer=label, content=content)
        for name in _named_scripts(tree):
            script = path.parent / name
            if script.is_file() and is_project_file(None, str(script)):
                self._later.append((script, name))

    def read_text(self, text: str, *, label: str) -> None:
        """Add Python code that is given as text, as after `python -c`."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return
        self._follow(tree, package="", importer=label, content=text.encode())

    def find(self, name: str) -> Path | None:
        """The file of a module, without importing it or its parents."""
        top, *rest = name.split(".")
        for folder in [*self._folders, *_roots(top)]:
            base = folder.joinpath(top, *rest)
            names = [base / "__init__.py", *(base.with_name(f"{base.name}{suffix}") for suffix in _SUFFIXES)]
            for path in names:
                if path.is_file():
                    return path
        return None

    def _follow(self, tree: ast.Module, *, package: str, importer: str, content: bytes) -> None:
        for imported in imports_of(tree, package=package):
            self.read_import(imported, importer=importer, is_search_path_changed=b"sys.path" in content)

    def _note_module(self, name: str) -> bool:
        path = self.find(name) if name else None
        if path is not None and is_project_file(name, str(path)):
            self._later.append((path, name))
        return path is not None


def imports_of(tree: ast.Module, *, package: str) -> Iterator[Imported]:
    """Every module that the file imports, also by a constant name passed to import_module()."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = absolute_name(node.module or "", node.level, package)
            yield Imported(name, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Call) and _called_name(node) in ("import_module", "__import__", "run_module"):
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (Imported(absolute_name(text.lstrip("."), _level(text), package)) for text in texts if text)


def absolute_name(name: str, level: int, package: str) -> str:
    """The full name of a module that is imported relative to `package`."""
    if level == 0:
        return name
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - level + 1])
    return f"{base}.{name}".strip(".") if name else base


def without_docstrings(tree: ast.Module) -> ast.Module:
    """`tree`, from which the docstrings have been removed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                node.body = node.body[1:]
    return tree


def _named_scripts(tree: ast.Module) -> Iterator[str]:
    """Python files that the code names, to run them."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text.endswith(".py") and len(text) < _MAX_NAME:
            yield text


def _is_library(top: str) -> bool:
    return top in sys.stdlib_module_names or bool(_roots(top))


def _called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _level(text: str) -> int:
    return len(text) - len(text.lstrip("."))


def _roots(top: str) -> list[Path]:
    """Folders in which Python finds the module or package `top`; several for a namespace package."""
    if not top:
        return []
    try:  # on the path first: a module in memory may have been made without a file
        spec = importlib.machinery.PathFinder.find_spec(top) or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.origin is None or not spec.has_location:
        return [Path(folder).parent for folder in spec.submodule_search_locations or ()]
    origin = Path(spec.origin)
    return [origin.parent.parent if origin.name == "__init__.py" else origin.parent]
