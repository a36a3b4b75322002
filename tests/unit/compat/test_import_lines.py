"""Any script: `trek migrate` changes the modules of its import statements, once, and nothing else of its text."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.cli.migrate import migrate as command
from trek.compat.migration import migrate
from trek.compat.names import PROJECTS
from trek.errors import InputError

MODULES = {one.original: one for names in PROJECTS.values() for one in names if one.here}
OTHERS = ("os", "determinedly", "my.determined", "torch.nn", "elasticdl2")


@dataclass(frozen=True)
class Piece:
    """A statement before and after; equal where nothing is to be changed."""

    before: str
    after: str


def same(text: str) -> Piece:
    return Piece(text, text)


names = st.sampled_from(["a", "b_1", "Trial", "ünïcode", "determined"])
modules = st.sampled_from(sorted(MODULES))
ends = st.sampled_from(["", "  # import determined", " ; x = 'import determined'", ";import determinedly"])


@st.composite
def from_imports(draw: st.DrawFn) -> Piece:
    module, end = draw(modules), draw(ends)
    gap = draw(st.sampled_from([" ", "  ", "\t", " \\\n  "]))
    wanted = draw(
        st.sampled_from(["*", "{a}", "{a} as {b}", "({a}, {b})", "(\n    {a},  # {b}\n    {b} as {a},\n)", "{a}, {b}"])
    ).format(a=draw(names), b=draw(names))
    end = "" if wanted == "*" and "(" in end else end
    target = MODULES[module].here
    return Piece(*(f"from{gap}{one}{gap}import {wanted}{end}" for one in (module, target)))


@st.composite
def aliased_imports(draw: st.DrawFn) -> Piece:
    module, other, name, end = draw(modules), draw(st.sampled_from(OTHERS)), draw(names), draw(ends)
    target = MODULES[module].here
    return Piece(*(f"import {other}, {one} as {name}, {other} as {name}{end}" for one in (module, target)))


plain = st.sampled_from(
    [
        same("text = 'from determined.pytorch import PyTorchTrial'"),
        same('"""\nimport determined\nfrom twister2 import TSetContext\n"""'),
        same("determined = 1; elasticdl = {'import determined': determined}"),
        same("from .determined import core"),
        same("from . import determined"),
        same("import determinedly, my.determined as det"),
        same("# import determined"),
        same("s = 'ä\\x0c\u2028' ; p = r'\\d'"),
        same(""),
    ]
)
statements = st.one_of(plain, from_imports(), aliased_imports())


def indented(text: str) -> str:
    return "\n".join(f"    {line}" if index == 0 else line for index, line in enumerate(text.split("\n")))


@st.composite
def scripts(draw: st.DrawFn) -> tuple[str, str]:
    """A script, and what it becomes."""
    pieces = draw(st.lists(statements, max_size=6))
    parts: list[Piece] = []
    for piece in pieces:
        if draw(st.booleans()) and piece.before[:1] not in ("", "#") and "import *" not in piece.before:
            head = draw(st.sampled_from(["if True:", "def f():", "try:"]))
            tail = "\nexcept ImportError:\n    pass" if head == "try:" else ""
            parts.append(Piece(*(f"{head}\n{indented(one)}{tail}" for one in (piece.before, piece.after))))
        else:
            parts.append(piece)
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    before, after = ("\n".join(getattr(part, which) for part in parts) for which in ("before", "after"))
    return before.replace("\n", end), after.replace("\n", end)


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@given(script=scripts())
def test_modules_of_import_statements_change_and_nothing_else(script: tuple[str, str]) -> None:
    before, after = script
    assert is_python(before), before
    found = migrate(before)
    assert found.text == after
    assert is_python(found.text)
    assert migrate(found.text).text == found.text, "a second time changes nothing"
    assert migrate(found.text).changes == []
    assert migrate(before) == found


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=30)
@given(script=scripts(), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_apply_keeps_the_file_before_and_its_encoding(script: tuple[str, str], encoding: str) -> None:
    before, after = script
    with TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_bytes(before.encode(encoding))
        if encoding == "utf-16":
            with pytest.raises(InputError, match=r"script\.py is not (UTF-8|valid Python)"):
                run("check", path)
            return
        first, second = (run("check", path, "--json") for _ in range(2))
        assert first == second
        written = run("apply", path, "--yes", "--json")
        assert path.read_bytes() == after.encode(encoding)
        backup = path.with_name("script.py.orig")
        assert backup.exists() == (before != after) == bool(written)
        assert not backup.exists() or backup.read_bytes() == before.encode(encoding)
        assert run("apply", path, "--yes", "--json") == []


def run(*words: Any) -> Any:
    result = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None and "do not exist here" not in str(result.exception):
        raise result.exception
    return json.loads(result.stdout) if "--json" in words else result.stdout
