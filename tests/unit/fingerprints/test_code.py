"""Code by content: what counts as a change and what does not."""

from __future__ import annotations

import functools
import os
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trek.fingerprints import fingerprint as value_digest
from trek.fingerprints import fingerprint_code, fingerprint_command


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Gives a function that makes a project module from source, anew each time under the same name."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(source: str, name: str = "steps_under_test") -> types.ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        made = types.ModuleType(name)
        made.__file__ = str(path)
        exec(compile(source, str(path), "exec"), made.__dict__)
        sys.modules[name] = made
        return made

    yield make
    sys.modules.pop("steps_under_test", None)
    sys.modules.pop("helper_under_test", None)


def _code_parts(function: Any) -> dict[str, str]:
    return {name: digest for name, digest in fingerprint_code(function).parts.items() if not digest.startswith("code ")}


def _script_parts(script: Path) -> dict[str, str]:
    return dict(fingerprint_command(["python", script], folder=script.parent).parts)


def _parts(module: Any, source: str) -> dict[str, str]:
    return _code_parts(module(source).step)


BASE = "FACTOR = 2\ndef helper(x):\n    return x * FACTOR\ndef step(x, y=1):\n    return helper(x) + y\n"


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n\n\n" + BASE,
        BASE.replace("    return helper", "    # why\n    return helper"),
        BASE.replace("def step(x, y=1):\n", 'def step(x, y=1):\n    """What it does."""\n'),
        BASE + "def unrelated():\n    return 1\n",
    ],
    ids=["moved", "commented", "documented", "beside something new"],
)
def test_what_does_not_change_the_result_changes_nothing(module: Any, same: str) -> None:
    assert _parts(module, same) == _parts(module, BASE)


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("+ y", "- y"),
        BASE.replace("y=1", "y=2"),
        BASE.replace("x * FACTOR", "x / FACTOR"),
        BASE.replace("FACTOR = 2", "FACTOR = 3"),
        BASE.replace("helper(x) + y", "helper(x) + y + 1"),
    ],
    ids=["operator", "default", "called function", "global constant", "constant"],
)
def test_what_may_change_the_result_changes_the_code(module: Any, other: str) -> None:
    assert _parts(module, other) != _parts(module, BASE)


def test_the_part_that_changed_has_a_name(module: Any) -> None:
    before, after = _parts(module, BASE), _parts(module, BASE.replace("x * FACTOR", "x / FACTOR"))
    assert [name for name in before if before[name] != after[name]] == ["steps_under_test.helper"]


def test_a_function_of_another_project_module_counts(module: Any) -> None:
    source = "import helper_under_test\ndef step():\n    return helper_under_test.work()\n"
    module("def work():\n    return 1\ndef idle():\n    return 1\n", "helper_under_test")
    before = _parts(module, source)
    module("def work():\n    return 1\ndef idle():\n    return 2\n", "helper_under_test")
    assert _parts(module, source) == before
    module("def work():\n    return 2\ndef idle():\n    return 2\n", "helper_under_test")
    assert _parts(module, source) != before


def test_a_module_imported_inside_the_function_counts(module: Any) -> None:
    source = "def step():\n    from helper_under_test import work\n    return work()\n"
    module("def work():\n    return 1\n", "helper_under_test")
    sys.modules.pop("helper_under_test")
    before = _parts(module, source)
    module("# said\ndef work():\n    return 1\n", "helper_under_test")
    sys.modules.pop("helper_under_test")
    assert _parts(module, source) == before
    module("def work():\n    return 2\n", "helper_under_test")
    sys.modules.pop("helper_under_test")
    assert _parts(module, source) != before


def test_a_closure_counts_by_what_it_holds(module: Any) -> None:
    source = "def make(n):\n    def inner(x):\n        return x + n\n    return inner\nstep = make({})\n"
    assert _parts(module, source.format(1)) == _parts(module, source.format(1))
    assert _parts(module, source.format(1)) != _parts(module, source.format(2))


def test_methods_of_a_used_class_count(module: Any) -> None:
    source = "class Net:\n    size = 1\n    def go(self):\n        return 1\ndef step():\n    return Net().go()\n"
    before = _parts(module, source)
    assert _parts(module, source.replace("return 1", "return 2")) != before
    assert _parts(module, source.replace("size = 1", "size = 2")) != before


def test_functions_that_call_each_other_end(module: Any) -> None:
    source = "def a():\n    return b()\ndef b():\n    return step()\ndef step():\n    return a()\n"
    assert len(_parts(module, source)) == 3


def test_a_long_chain_of_calls_is_followed_to_its_end(module: Any) -> None:
    """Reading one function within the other ended at Python's limit of nested calls."""
    chain = "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(3000))
    source = f"{chain}def f3000():\n    return {{}}\nstep = f0\n"
    assert _parts(module, source.format(1)) == _parts(module, source.format(1))
    assert _parts(module, source.format(1)) != _parts(module, source.format(2))


def test_what_a_library_keeps_for_itself_does_not_count_and_what_the_project_keeps_does(module: Any) -> None:
    """A cache that a decorator fills while the function runs made another function of it."""
    made = module("import functools\n@functools.singledispatch\ndef step(x):\n    return x\n")
    before = fingerprint_code(made.step)
    made.step(1)
    assert fingerprint_code(made.step) == before
    locked = "import contextlib, threading\nLOCK = threading.Lock()\n"
    locked += "@contextlib.contextmanager\ndef step():\n    yield LOCK\n"
    assert fingerprint_code(module(locked).step).unknown == ("steps_under_test.LOCK (_thread.lock)",)


def test_a_module_called_as_one_of_python_is_still_the_projects(tmp_path: Path) -> None:
    """A file of the project called code.py or profile.py was taken for Python's own."""
    digests = []
    for value in (1, 2):
        (tmp_path / "profile.py").write_text(f"K = {value}\n")
        (tmp_path / "train.py").write_text("import profile\n")
        digests.append(_script_parts(tmp_path / "train.py"))
    assert digests[0] != digests[1]


def test_partials_count_by_function_and_arguments() -> None:
    assert _code_parts(functools.partial(max, 1)) != _code_parts(functools.partial(max, 2))


def test_a_library_counts_by_name_only() -> None:
    assert fingerprint_code(textwrap.dedent).parts == {"function": "library textwrap.dedent"}


def test_a_script_counts_with_the_project_modules_it_imports(tmp_path: Path) -> None:
    script, helper = tmp_path / "train.py", tmp_path / "helper_of_script.py"
    script.write_text("import json\nfrom helper_of_script import work\nwork()\n")
    helper.write_text("def work():\n    return 1\n")
    before = _script_parts(script)
    assert [name for name in sorted(before) if name.startswith("code")] == [
        "code of helper_of_script",
        "code of train.py",
    ]
    helper.write_text("def work():\n    return 1  # one\n")
    assert _script_parts(script) == before
    helper.write_text("def work():\n    return 2\n")
    assert _script_parts(script) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), ("1", 1), ([1], (1,)), ({"a": 1}, {"a": 2}), (np.zeros(2), np.zeros(3)), (None, "None")],
)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert value_digest(one) != value_digest(other)


def test_equal_values_have_equal_digests() -> None:
    assert value_digest({"b": {1, 2}, "a": np.ones(3)}) == value_digest({"b": {2, 1}, "a": np.ones(3)})


def test_a_path_counts_by_its_name_and_what_lies_there(tmp_path: Path) -> None:
    """A function that returns the name of its file gave that of another file with the same contents."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("x")
    assert value_digest(tmp_path / "one" / "a") == value_digest(tmp_path / "two" / "a")
    (tmp_path / "two" / "a").write_text("y")
    assert value_digest(tmp_path / "one" / "a") != value_digest(tmp_path / "two" / "a")
    (tmp_path / "one" / "b").write_text("x")
    assert value_digest(tmp_path / "one" / "a") != value_digest(tmp_path / "one" / "b")


def test_what_lies_behind_a_link_counts(tmp_path: Path) -> None:
    """A folder that is a link was left out, so that its files could change unnoticed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "broken").symlink_to(tmp_path / "nothing")
    before = value_digest(tmp_path / "data")
    assert value_digest(tmp_path / "data") == before
    (tmp_path / "real" / "a").write_text("y")
    assert value_digest(tmp_path / "data") != before


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Reading a pipe to which nobody writes never ended."""
    os.mkfifo(tmp_path / "pipe")
    assert value_digest(tmp_path) == value_digest(tmp_path)


def test_a_folder_counts_by_its_files_and_not_by_what_python_or_git_leave_there(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("x = 1")
    before = value_digest(tmp_path)
    for name in ("__pycache__", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index").write_text("anything")
    assert value_digest(tmp_path) == before
    (tmp_path / "model.py").write_text("x = 2")
    assert value_digest(tmp_path) != before
