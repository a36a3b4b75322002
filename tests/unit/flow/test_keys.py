"""Keys: what a step's result depends on, and how a change is explained."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trek.flow import Flow
from trek.flow.artefacts import store_value
from trek.flow.graph import Output
from trek.flow.keys import Components, Keymaker, explain_change, make_key


def _components(output: Any, stored: dict[Output, Any] | None = None) -> Components:
    return Keymaker({}, stored or {}, home=Path("home")).components(output.step)


def _cell(source: str) -> Callable[..., Any]:
    """A function as a notebook defines it: in a module without a file, its code in one named after the cell."""
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    exec(compile(source, f"/tmp/ipykernel_1/{abs(hash(source))}.py", "exec"), space)
    return space["fit"]


def test_a_function_of_a_notebook_counts_by_its_own_code() -> None:
    """After any edit of its cell every step of a notebook ran again."""
    cell = "def prepare(n):\n    return n\ndef fit(x):\n    return x + 1\n"
    keys = [
        make_key(_components(Flow("f").step(_cell(source), 1)))
        for source in (cell, f"# a remark\n{cell}", cell.replace("return n", "return -n"), cell.replace("+ 1", "+ 2"))
    ]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_an_argument_that_cannot_be_fingerprinted_is_named_and_the_step_runs_again() -> None:
    """It counted by its printed form, so that another object of the same kind was taken for it."""
    output = Flow("f").step(_cell("def fit(x):\n    return 1\n"), types.SimpleNamespace(lock=threading.Lock()))
    before, now = _components(output), _components(output)
    assert make_key(before) != make_key(now)
    assert "argument 0.lock (_thread.lock) cannot be fingerprinted" in explain_change(now, before)
    assert explain_change(now, None) == "it has not succeeded before"


def test_what_uses_a_service_depends_on_what_it_serves(tmp_path: Path) -> None:
    """It depended on the address alone, which stays the same when the model that is served changes."""
    keys = []
    for version in (1, 2, 1):
        flow = Flow("f")
        model = flow.step(_cell("def fit(x):\n    return x\n"), version)
        url = flow.service("serve", [sys.executable, "-m", "http.server", model.path], ready=8080)
        answer = flow.step(_cell("def fit(url):\n    return url\n"), url)
        stored = {
            model: store_value(version, tmp_path / f"model{len(keys)}"),
            url: store_value("http://127.0.0.1:8080", tmp_path / f"url{len(keys)}"),
        }
        keymaker = Keymaker({}, stored, home=tmp_path)
        keymaker.components(url.step)
        keys.append(make_key(keymaker.components(answer.step)))
    assert keys[0] == keys[2] != keys[1]


def test_the_contents_of_a_file_that_a_function_holds_the_path_of_are_named(tmp_path: Path) -> None:
    function = _cell("def fit():\n    return PATH\n")
    function.__globals__["PATH"] = tmp_path / "words.txt"
    (tmp_path / "words.txt").write_text("one")
    before = _components(Flow("f").step(function))
    (tmp_path / "words.txt").write_text("two")
    assert explain_change(_components(Flow("f").step(function)), before) == "contents of __main__.PATH changed"
