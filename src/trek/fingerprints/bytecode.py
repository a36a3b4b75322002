"""Bytecode: what a code object does, which names it uses, and what it imports. Knows nothing of values."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

_MEANING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CELL = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_REMARKS = ("__doc__", "__firstlineno__")


class Use(NamedTuple):
    """A name that code loads, with the attributes that are taken from it at once: `a` and `("b", "c")` of `a.b.c`."""

    name: str
    attributes: tuple[str, ...]


class Import(NamedTuple):
    """An import inside a function."""

    name: str
    level: int
    taken: tuple[str, ...]


def spell_code(code: types.CodeType) -> Iterator[str]:
    """Instructions with their constants in place, so that a docstring, which no instruction loads, does not count."""
    instructions = list(dis.get_instructions(code))
    for instruction, following in zip_longest(instructions, instructions[1:]):
        if _is_remark(instruction) or _is_remark(following):
            continue
        if instruction.opcode in dis.hasconst:
            yield instruction.opname
            yield from _spell_constant(instruction.argval)
        else:
            is_name = instruction.opcode in dis.hasname
            yield f"{instruction.opname} {instruction.argrepr if is_name else instruction.arg}"
    yield code.co_exceptiontable.hex()
    yield repr((code.co_freevars, code.co_flags & _MEANING, code.co_argcount, code.co_kwonlyargcount))
    yield repr((code.co_posonlyargcount, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]))


def uses(code: types.CodeType) -> set[Use]:
    """Every name that is not local and what is taken from it, nested code included."""
    found = set()
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("PUSH_NULL", "PRECALL")]
    for index, instruction in enumerate(instructions):
        if instruction.opname in (*_GLOBAL, *_CELL):
            found.add(Use(instruction.argval, tuple(_attributes(instructions[index + 1 :]))))
    return found.union(*(uses(inner) for inner in nested(code)))


def imports(code: types.CodeType) -> Iterator[Import]:
    """Every import statement, nested code included."""
    instructions = list(dis.get_instructions(code))
    for index, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, taken = instructions[index - 2].argval, instructions[index - 1].argval
            yield Import(instruction.argval, level if isinstance(level, int) else 0, tuple(taken or ()))
    for inner in nested(code):
        yield from imports(inner)


def texts(code: types.CodeType) -> Iterator[str]:
    """Every text among the constants, nested code included."""
    yield from (constant for constant in code.co_consts if isinstance(constant, str))
    for inner in nested(code):
        yield from texts(inner)


def nested(code: types.CodeType) -> list[types.CodeType]:
    """The code of functions, classes and comprehensions that are defined inside."""
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _attributes(instructions: list[dis.Instruction]) -> Iterator[str]:
    for instruction in instructions:
        if instruction.opname not in _ATTRIBUTE:
            return
        yield instruction.argval


def _is_remark(instruction: dis.Instruction | None) -> bool:
    """Whether a class body stores its docstring or the number of its first line here, which change nothing."""
    return instruction is not None and instruction.opname == "STORE_NAME" and instruction.argval in _REMARKS


def _spell_constant(constant: object) -> Iterator[str]:
    if isinstance(constant, types.CodeType):
        yield from spell_code(constant)
    elif isinstance(constant, frozenset):
        yield repr(sorted(map(repr, constant)))
    else:
        yield repr(constant)
