"""Code by content: functions, classes and modules of the project. Those of libraries count by name.

Instructions, constants, names, defaults and closures count; line numbers, comments and docstrings do not. What a
library wraps around the project's code is looked through.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.fingerprints import bytecode
from trek.fingerprints.naming import module_label
from trek.fingerprints.ownership import is_library_name, is_project_class, is_project_function, is_project_module
from trek.fingerprints.sources import Imported, SourceReader, absolute_name

if TYPE_CHECKING:
    from trek.fingerprints.reader import Reader

_MADE_BY_PYTHON = {
    "__abstractmethods__", "__dict__", "__doc__", "__firstlineno__", "__module__", "__qualname__", "__signature__",
    "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip
_MADE_BY_ENUM = "_member_", "_value2member_", "_unhashable_values_", "_hashable_values_", "_new_member_"
_SEES_ALL_NAMES = {"eval", "exec", "globals"}
_COMPILED = "_torchdynamo_orig_callable"
_IMPORTS_BY_NAME = {"import_module", "__import__"}


def refer(reader: Reader, value: Any) -> str:
    """What refers to a function, class or module; its parts are added when it is met for the first time."""
    if isinstance(value, types.FunctionType):
        return _refer_to_function(reader, value)
    if isinstance(value, type):
        return _refer_to_class(reader, value)
    return _refer_to_module(reader, value)


def _refer_to_function(reader: Reader, function: types.FunctionType) -> str:
    module, qualname = module_label(function.__globals__), function.__code__.co_qualname
    is_project = is_project_function(function)
    if not is_project and is_library_name(function.__module__, function.__qualname__, function):
        return f"library {function.__module__}.{function.__qualname__}"
    label, is_new = reader.claim(f"{module}.{qualname}", key=id(reader.keep(function)))
    if is_new:
        tokens = _function_tokens if is_project else _wrapper_tokens
        reader.read_later(label, lambda: tokens(reader, function, label), is_library=not is_project)
    return f"code {label}"


def _function_tokens(reader: Reader, function: types.FunctionType, label: str) -> Iterator[str]:
    yield from bytecode.spell_code(function.__code__)
    yield from _bound_tokens(reader, function, label)
    cells = _cells(function)
    names = sorted(bytecode.uses(function.__code__))
    for name, cell in sorted(cells.items()):
        yield from _use_tokens(reader, cell, name=name, names=names, label=f"{label}.{name}", key=(id(function), name))
    module = module_label(function.__globals__)
    for name in dict.fromkeys(use.name for use in names if use.name not in cells):
        if name in function.__globals__:
            key, value = (id(function.__globals__), name), function.__globals__[name]
            yield from _use_tokens(reader, value, name=name, names=names, label=f"{module}.{name}", key=key)
    yield from _import_tokens(reader, function, {use.name for use in names} | set(_attribute_names(names)))


def _bound_tokens(reader: Reader, function: types.FunctionType, label: str) -> Iterator[str]:
    """Defaults, and attributes that were set on the function; `__wrapped__` is one."""
    yield reader.spell(function.__defaults__, where=f"{label} (defaults)")
    yield reader.spell(function.__kwdefaults__, where=f"{label} (defaults)")
    for name, value in sorted(vars(function).items()):
        yield name
        yield reader.use(value, label=f"{label}.{name}", key=(id(function), "attribute", name))


def _wrapper_tokens(reader: Reader, function: types.FunctionType, label: str) -> Iterator[str]:
    """A library's function that cannot be found by its name: a decorator's, which holds the project's code."""
    if _COMPILED in vars(function):  # by torch.compile, which keeps counters beside it
        yield reader.spell(vars(function)[_COMPILED], where=label)
        return
    yield from _bound_tokens(reader, function, label)
    for name, value in sorted(_cells(function).items()):
        yield name
        yield reader.spell(value, where=f"{label}.{name}")


def _use_tokens(
    reader: Reader, value: Any, *, name: str, names: list[bytecode.Use], label: str, key: Any
) -> Iterator[str]:
    """What `name`, which stands for `value`, is used for: of a module of the project only what is taken from it."""
    yield name
    if not isinstance(value, types.ModuleType) or not is_project_module(value):
        yield reader.use(value, label=label, key=key)
        return
    for use in names:
        if use.name == name:
            yield from _taken_tokens(reader, value, use.attributes)


def _taken_tokens(reader: Reader, module: types.ModuleType, attributes: tuple[str, ...]) -> Iterator[str]:
    """What an expression such as `package.module.CONSTANT` takes; the whole module if that cannot be told."""
    if not attributes or attributes[0] not in vars(module):
        yield _refer_to_module(reader, module)
        return
    name, *rest = attributes
    value = vars(module)[name]
    yield f"{module.__name__}.{name}"
    if isinstance(value, types.ModuleType) and is_project_module(value):
        yield from _taken_tokens(reader, value, tuple(rest))
    else:
        label = f"{module_label(vars(module))}.{name}"
        yield reader.use(value, label=label, key=(id(vars(module)), name))


def _import_tokens(reader: Reader, function: types.FunctionType, names: set[str]) -> Iterator[str]:
    """What is imported while the function runs, by whole files; and everything, if it may look up any name."""
    found = SourceReader()
    package = str(function.__globals__.get("__package__") or "")
    for name, level, taken in bytecode.imports(function.__code__):
        found.read_import(Imported(absolute_name(name, level, package), taken))
    if names & _IMPORTS_BY_NAME:
        for text in bytecode.texts(function.__code__):
            found.read_import(Imported(absolute_name(text.lstrip("."), len(text) - len(text.lstrip(".")), package)))
    reader.add(found.parts, found.unknown)
    yield from found.parts
    if names & _SEES_ALL_NAMES - function.__globals__.keys():
        yield from _whole_tokens(reader, function)


def _whole_tokens(reader: Reader, function: types.FunctionType) -> Iterator[str]:
    file = function.__globals__.get("__file__")
    if not isinstance(file, str) or not Path(file).is_file():
        yield reader.mark_unknown(f"{function.__qualname__}, which evaluates code or names")
        return
    found = SourceReader()
    found.read_file(Path(file), label=module_label(function.__globals__))
    reader.add(found.parts, found.unknown)
    yield from found.parts


def _attribute_names(names: list[bytecode.Use]) -> Iterator[str]:
    for use in names:
        yield from use.attributes


def _cells(function: types.FunctionType) -> dict[str, Any]:
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # assigned after the function was made, and not yet
            continue
    return cells


def _refer_to_class(reader: Reader, kind: type) -> str:
    if not is_project_class(kind):
        return f"library {kind.__module__}.{kind.__qualname__}"
    module = _namespace_of(kind)
    label, is_new = reader.claim(f"{module_label(module)}.{kind.__qualname__}", key=id(reader.keep(kind)))
    if is_new:
        reader.read_later(label, lambda: _class_tokens(reader, kind, label), is_library=False)
    return f"code {label}"


def _class_tokens(reader: Reader, kind: type, label: str) -> Iterator[str]:
    yield kind.__name__
    yield from (refer(reader, base) for base in kind.__bases__)
    yield refer(reader, type(kind))
    for name, member in sorted(_members(kind).items()):
        yield name
        yield reader.use(member, label=f"{label}.{name}", key=(id(kind), name))


def _members(kind: type) -> dict[str, Any]:
    """What the class's definition says; an enumeration's members by their values, since they belong to the class."""
    members = {name: value for name, value in vars(kind).items() if not _is_made(name)}
    enum_members = vars(kind).get("_member_map_")
    if isinstance(enum_members, dict):
        members = {name: value for name, value in members.items() if not name.startswith(_MADE_BY_ENUM)}
        members |= {name: member._value_ for name, member in enum_members.items()}
        members["_member_names_"] = list(enum_members)
    return members


def _is_made(name: str) -> bool:
    is_pydantic = name.startswith("__pydantic_") and name != "__pydantic_fields__"
    return name in _MADE_BY_PYTHON or is_pydantic


def _namespace_of(kind: type) -> dict[str, Any]:
    module = sys.modules.get(kind.__module__)
    return {"__name__": kind.__module__} if module is None else vars(module)


def _refer_to_module(reader: Reader, module: types.ModuleType) -> str:
    if not is_project_module(module):
        return f"library {module.__name__}"
    file = getattr(module, "__file__", None)
    label = f"module {module_label(vars(module))}"
    label, is_new = reader.claim(label, key=id(module))
    if not is_new:
        return f"code {label}"
    if file and Path(file).is_file():
        found = SourceReader()
        found.read_file(Path(file), label=module.__name__)
        reader.add(found.parts, found.unknown)
        reader.parts[label] = repr(sorted(found.parts))
    elif getattr(module, "__path__", None) and file is None:
        reader.parts[label] = "a folder of modules"
    else:
        reader.parts[label] = reader.mark_unknown(f"{label}, which has no source file")
    return f"code {label}"
