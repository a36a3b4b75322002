"""Commands count with the files, folders, scripts and modules that they name, however they name them."""

# ruff: noqa: E501 - one case a line

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from trek.fingerprints import fingerprint_command
from trek.fingerprints.commands import identify_interpreter

SCRIPT = "import helper\nprint(helper.K)\n"

CASES: dict[str, tuple[list[Any], str, dict[str, str]]] = {
    "a script": (["python", "s.py"], "s.py", {"s.py": "print({v})\n"}),
    "a script as a Path": (["python", Path("s.py")], "helper.py", {"s.py": SCRIPT, "helper.py": "K = {v}\n"}),
    "a script's module": (["python", "s.py"], "helper.py", {"s.py": SCRIPT, "helper.py": "K = {v}\n"}),
    "a program in this folder": (["./go.sh"], "go.sh", {"go.sh": "#!/bin/sh\necho {v}\n"}),
    "a Python program in this folder": (["./go"], "helper.py", {"go": f"#!/usr/bin/env python\n{SCRIPT}", "helper.py": "K = {v}"}),
    "a shell script": (["sh", "go.sh"], "go.sh", {"go.sh": "echo {v}\n"}),
    "what a shell script runs": (["bash", "go.sh"], "s.py", {"go.sh": "set -e\npython s.py --fast\n", "s.py": "print({v})\n"}),
    "a line for the shell": (["sh", "-c", "python s.py > out"], "s.py", {"s.py": "print({v})\n"}),
    "a module": (["python", "-m", "mod"], "mod.py", {"mod.py": "print({v})\n"}),
    "a module of a package": (["python", "-m", "p.mod"], "p/mod.py", {"p/__init__.py": "", "p/mod.py": "print({v})\n"}),
    "a package that is run": (["python", "-m", "p"], "p/__main__.py", {"p/__init__.py": "", "p/__main__.py": "print({v})\n"}),
    "a package's own code": (["python", "-m", "p.mod"], "p/__init__.py", {"p/__init__.py": "K = {v}\n", "p/mod.py": ""}),
    "a program text": (["python", "-c", "import helper; print(helper.K)"], "helper.py", {"helper.py": "K = {v}\n"}),
    "a file": (["python", "s.py", "c.txt"], "c.txt", {"s.py": "", "c.txt": "{v}"}),
    "a file after an equals sign": (["python", "s.py", "--config=c.txt"], "c.txt", {"s.py": "", "c.txt": "{v}"}),
    "one of several files": (["python", "s.py", "--data=a.txt,b.txt"], "b.txt", {"s.py": "", "a.txt": "", "b.txt": "{v}"}),
    "a folder": (["python", "s.py", "d"], "d/e/c.txt", {"s.py": "", "d/e/c.txt": "{v}"}),
    "a folder after an equals sign": (["python", "s.py", "--in=d/"], "d/c.txt", {"s.py": "", "d/c.txt": "{v}"}),
    "this folder": (["tool", "."], "c.txt", {"c.txt": "{v}"}),
    "a launcher's script": (["torchrun", "--nproc-per-node=2", "s.py"], "s.py", {"s.py": "print({v})\n"}),
    "a namespace package": (["python", "s.py"], "n/sub.py", {"s.py": "from n import sub\n", "n/sub.py": "K = {v}\n"}),
    "a relative import": (
        ["python", "-m", "p.a"], "p/b.py", {"p/__init__.py": "", "p/a.py": "from .b import K\n", "p/b.py": "K = {v}\n"},
    ),
    "a script that a script runs": (["python", "s.py"], "t.py", {"s.py": "import runpy\nrunpy.run_path('t.py')\n", "t.py": "print({v})\n"}),
    "a module by its name": (
        ["python", "s.py"], "h.py", {"s.py": "import importlib\nimportlib.import_module('h')\n", "h.py": "K = {v}\n"},
    ),
}  # fmt: skip


def write(folder: Path, files: dict[str, str], value: int) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("{v}", str(value)))


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_what_a_command_names_is_noticed(name: str, tmp_path: Path) -> None:
    """Programs in the folder, modules, files after an equals sign and folders could change unnoticed."""
    argv, _, files = CASES[name]
    write(tmp_path, files, 1)
    before = fingerprint_command(argv, folder=tmp_path)
    assert not before.unknown
    assert fingerprint_command(argv, folder=tmp_path) == before
    write(tmp_path, files, 2)
    assert fingerprint_command(argv, folder=tmp_path).parts != before.parts


def test_a_file_that_the_command_does_not_name_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("print(1)\n")
    before = fingerprint_command(["python", "s.py", "--lr=0.1", "a b", "x" * 5000], folder=tmp_path)
    (tmp_path / "other.py").write_text("print(2)\n")
    assert fingerprint_command(["python", "s.py", "--lr=0.1", "a b", "x" * 5000], folder=tmp_path) == before


def test_a_file_that_a_variable_names_counts(tmp_path: Path) -> None:
    """Its contents could change unnoticed."""
    (tmp_path / "c.yaml").write_text("1")
    before = fingerprint_command(["tool"], folder=tmp_path, variables=["c.yaml", "/usr/bin:/bin", "text"])
    assert sorted(before.parts) == ["file c.yaml", "word 0"]
    (tmp_path / "c.yaml").write_text("2")
    assert fingerprint_command(["tool"], folder=tmp_path, variables=["c.yaml"]).parts != before.parts


def test_a_folder_counts_without_what_is_left_out(tmp_path: Path) -> None:
    """The records of flows may lie in the folder that a command works on, and change with every run."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "flow.db").write_text("1")
    before = fingerprint_command(["tool", "."], folder=tmp_path, left_out=[tmp_path / "home"])
    (tmp_path / "home" / "flow.db").write_text("2")
    assert fingerprint_command(["tool", "."], folder=tmp_path, left_out=[tmp_path / "home"]) == before
    assert fingerprint_command(["tool", "."], folder=tmp_path) != before


def test_an_interpreter_counts_by_what_it_is_and_not_by_how_it_is_spelled(tmp_path: Path) -> None:
    """The same Python under another of its names ran every script again."""
    (tmp_path / "env").symlink_to(sys.prefix)
    here = Path(sys.executable)
    spellings = [here, here.parent / "python3", tmp_path / "env" / "bin" / here.name, os.path.relpath(here, tmp_path)]
    assert len({identify_interpreter(str(one), tmp_path) for one in spellings}) == 1
    assert identify_interpreter("train.py", tmp_path) is None


def test_another_environment_is_another_interpreter(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "pyvenv.cfg").write_text("version = 3.11.0\n")
    other = identify_interpreter(str(tmp_path / "bin" / "python"), tmp_path)
    assert other is not None
    assert other != identify_interpreter(sys.executable, tmp_path)


def test_a_module_that_cannot_be_found_after_changing_the_path_is_named(tmp_path: Path) -> None:
    """Modules in folders that a script adds to sys.path itself could change unnoticed."""
    (tmp_path / "s.py").write_text("import sys, json\nsys.path.insert(0, 'lib' + str(1))\nimport hidden_helper\n")
    (unknown,) = fingerprint_command(["python", "s.py"], folder=tmp_path).unknown
    assert "hidden_helper" in unknown
