"""What a function's code is, by content: itself and everything of the project that it reaches, each part by name.

Bytes, constants, names, defaults and closures count; line numbers, comments and docstrings do not. Libraries count by
name only: what is installed is taken to stay. Parts have names, so that a change can be explained.
"""

from __future__ import annotations

import ast
import dis
import functools
import importlib.util
import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

from trek.flow.contents import digest_path, digest_text

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MEANING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def code_parts(function: Any) -> dict[str, str]:
    """Name and digest of every part of the project that `function` is made of."""
    reader = _Reader()
    reader.read(function, label="function")
    return reader.parts


def script_parts(path: Path) -> dict[str, str]:
    """The same for a Python file that is run: the file, and the project's modules that it imports."""
    reader = _Reader(extra_folder=path.parent)
    reader.read_file(path, label=path.name)
    return reader.parts


def value_digest(value: Any) -> str:
    """A digest of a value by content: plain data, containers, arrays, functions, paths by their contents."""
    return digest_text("\n".join(_Reader().spell(value)))


class _Reader:
    """Walks from one function to all it reaches; each part once."""

    def __init__(self, extra_folder: Path | None = None) -> None:
        self.parts: dict[str, str] = {}
        self._seen: set[int] = set()
        self._extra_folder = extra_folder

    def read(self, value: Any, *, label: str) -> None:
        """Add the parts of `value`, which something called `label` uses."""
        if isinstance(value, types.FunctionType):
            self._read_function(value)
        elif isinstance(value, type):
            self._read_class(value)
        elif isinstance(value, types.ModuleType):
            self.parts.setdefault(f"module {value.__name__}", "by name")
        elif isinstance(value, functools.partial | types.MethodType) or hasattr(value, "__wrapped__"):
            self._read_wrapper(value, label)
        else:
            self.parts[label] = digest_text("\n".join(self.spell(value)))

    def _read_wrapper(self, value: Any, label: str) -> None:
        if isinstance(value, functools.partial):
            self.read(value.func, label=label)
            self.read((value.args, value.keywords), label=f"{label} (bound arguments)")
        elif isinstance(value, types.MethodType):
            self.read(value.__func__, label=label)
            self.read(value.__self__, label=f"{label} (its object)")
        else:
            self.read(value.__wrapped__, label=label)

    def _read_function(self, function: types.FunctionType) -> None:
        label = f"{_label_of(function)}.{function.__qualname__}"
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        if not _is_project(function.__module__, function.__code__.co_filename):
            self.parts[label] = "by name"
            return
        defaults = [*self.spell(function.__defaults__), *self.spell(function.__kwdefaults__)]
        self.parts[label] = digest_text("\n".join([*_spell_code(function.__code__), *defaults]))
        for name, value in _used_names(function):
            self._read_used(value, name=name, function=function)
        for name, level, taken in _imports(function.__code__):
            package = function.__globals__.get("__package__") or ""
            self._read_import(_absolute(name, level, package), taken)

    def _read_used(self, value: Any, *, name: str, function: types.FunctionType) -> None:
        label = f"{_label_of(function)}.{name}"
        if isinstance(value, types.ModuleType) and _is_project(value.__name__, getattr(value, "__file__", None)):
            for attribute in sorted(_all_names(function.__code__) & vars(value).keys()):
                self.read(getattr(value, attribute), label=f"{value.__name__}.{attribute}")
        else:
            self.read(value, label=label)

    def _read_class(self, kind: type) -> None:
        file = _file_of(kind.__module__)
        label = f"{_module_label(kind.__module__, file)}.{kind.__qualname__}"
        if id(kind) in self._seen:
            return
        self._seen.add(id(kind))
        if not _is_project(kind.__module__, file):
            self.parts[label] = "by name"
            return
        self.parts[label] = digest_text(repr([base.__qualname__ for base in kind.__mro__]))
        for base in kind.__bases__:
            self._read_class(base)
        for name, member in sorted(vars(kind).items()):
            if name in ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__"):
                continue
            inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(inner, types.FunctionType) or not callable(getattr(type(inner), "__get__", None)):
                self.read(inner, label=f"{label}.{name}")

    def _read_import(self, name: str, taken: tuple[str, ...]) -> None:
        for one in (name, *(f"{name}.{item}" for item in taken)):
            path = _find_source(one, self._extra_folder)
            if path is not None and _is_project(one, str(path)):
                self.read_file(path, label=one)

    def read_file(self, path: Path, *, label: str) -> None:
        """Add a whole source file, and what it imports of the project."""
        if label in self.parts:
            return
        try:
            tree = _without_docstrings(ast.parse(path.read_bytes()))
        except (SyntaxError, ValueError):  # it will fail when it is run, and say so better
            self.parts[label] = digest_path(path)
            return
        self.parts[label] = digest_text(ast.dump(tree))
        package = label if path.name == "__init__.py" else label.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._read_import(alias.name, ())
            elif isinstance(node, ast.ImportFrom):
                name = _absolute(node.module or "", node.level, package)
                self._read_import(name, tuple(alias.name for alias in node.names))

    def spell(self, value: Any) -> Iterator[str]:
        """Text that is equal for equal values and different for different ones."""
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, Enum):
            yield f"{type(value).__qualname__}.{value.name}"
        elif isinstance(value, Path):
            yield f"contents {digest_path(value)}" if value.exists() else f"missing {value}"
        elif isinstance(value, list | tuple):
            yield f"{type(value).__qualname__} {len(value)}"
            for item in value:
                yield from self.spell(item)
        elif isinstance(value, set | frozenset):
            yield f"set {sorted(digest_text(chr(10).join(self.spell(item))) for item in value)}"
        elif isinstance(value, Mapping):
            yield f"{type(value).__qualname__} {len(value)}"
            for key in sorted(value, key=repr):
                yield from self.spell(key)
                yield from self.spell(value[key])
        else:
            yield from self._spell_object(value)

    def _spell_object(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if isinstance(value, types.FunctionType | type | functools.partial | types.MethodType):
            yield repr(sorted(code_parts(value).items()))
        elif hasattr(value, "__array__") or hasattr(value, "__arrow_c_stream__"):
            from trek.data.storing.fingerprint import fingerprint

            yield f"{kind.__qualname__} {fingerprint(value)}"
        elif id(value) in self._seen:
            yield "again"
        elif hasattr(value, "__dict__") and _is_project(kind.__module__, _file_of(kind.__module__)):
            self._seen.add(id(value))
            yield repr(sorted(code_parts(kind).items()))
            yield from self.spell(vars(value))
        else:
            yield f"{kind.__module__}.{kind.__qualname__} {_ADDRESS.sub('', repr(value))}"


def _spell_code(code: types.CodeType) -> Iterator[str]:
    """Instructions with their constants in place, so that a docstring, which no instruction loads, does not count."""
    for instruction in dis.get_instructions(code):
        if instruction.opcode in dis.hasconst:
            yield instruction.opname
            yield from _spell_constant(instruction.argval)
        else:
            yield f"{instruction.opname} {instruction.arg}"
    yield code.co_exceptiontable.hex()
    yield repr((code.co_names, code.co_freevars, code.co_flags & _MEANING, code.co_argcount, code.co_kwonlyargcount))
    yield repr(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _spell_constant(constant: Any) -> Iterator[str]:
    if isinstance(constant, types.CodeType):
        yield from _spell_code(constant)
    elif isinstance(constant, frozenset):
        yield repr(sorted(map(repr, constant)))
    else:
        yield repr(constant)


def _all_names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*(_all_names(one) for one in inner))


def _used_names(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{function.__qualname__}.{name}", cell.cell_contents
        except ValueError:  # assigned after the function was made, and not yet
            continue
    for name in sorted(_all_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _imports(code: types.CodeType) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Name, level and what is taken, of every import inside the function."""
    instructions = list(dis.get_instructions(code))
    for index, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, taken = instructions[index - 2].argval, instructions[index - 1].argval
            yield instruction.argval, level if isinstance(level, int) else 0, tuple(taken or ())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imports(constant)


def _absolute(name: str, level: int, package: str) -> str:
    if level == 0:
        return name
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - level + 1])
    return f"{base}.{name}".strip(".") if name else base


def _find_source(name: str, extra_folder: Path | None) -> Path | None:
    """The file of a module, without importing it or its parents."""
    top, *rest = name.split(".")
    if top in sys.stdlib_module_names or not top:
        return None
    for folder in [*([extra_folder] if extra_folder else []), *_roots(top)]:
        base = folder.joinpath(top, *rest)
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def _roots(top: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return [origin.parent.parent if origin.name == "__init__.py" else origin.parent]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                node.body = node.body[1:]
    return tree


def _module_label(module: str | None, file: str | None) -> str:
    """A module's name; that of a file when it stands alone, so that a script is the same whether run or imported."""
    if module and "." in module:
        return module
    return Path(file).stem if file and not file.startswith("<") else module or "?"


def _label_of(function: types.FunctionType) -> str:
    return _module_label(function.__module__, function.__code__.co_filename)


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _is_project(module: str | None, file: str | None) -> bool:
    """Whether code belongs to the user's project: not the standard library, not installed, not Trek itself."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names - {"__main__"} or top == "trek":
        return False
    if not file or file.startswith("<"):
        return True
    path = PurePath(file)
    return "site-packages" not in path.parts and not any(path.is_relative_to(root) for root in _library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
