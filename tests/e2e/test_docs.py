"""The pages that promise to run do run: their Python blocks, in order, as one program in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLAIM = re.compile(r"^( *)(\S.*?)  # → (.*)$", re.MULTILINE)
_CHECK = """
def _check(value, expected):
    found = value if isinstance(value, str) else repr(value)
    assert found == expected, f"the page says {expected}, and it is {found}"
"""


def program_of(page: str) -> str:
    """The blocks of a page as a program that checks each `expression  # → what it gives`."""
    blocks = "\n".join(_BLOCK.findall(page))
    return _CHECK + _CLAIM.sub(lambda claim: f"{claim[1]}_check(({claim[2]}), {claim[3]!r})", blocks)


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "page.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-W", "error", "page.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_blocks_of_the_data_page_run_and_give_what_it_says(tmp_path: Path) -> None:
    program = program_of((DOCS / "data.md").read_text())
    assert program.count("_check((") > 20
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("claim", "holds"), [("1 + 1  # → 2", True), ("1 + 1  # → 3", False)])
def test_a_page_that_says_something_else_fails(claim: str, holds: bool, tmp_path: Path) -> None:
    done = run(program_of(f"```python\n{claim}\n```\n"), tmp_path)
    assert (done.returncode == 0) is holds
    assert holds or "the page says 3, and it is 2" in done.stderr


def test_the_package_on_the_page_about_plugins_passes_its_own_tests(tmp_path: Path) -> None:
    page = (DOCS / "plugins.md").read_text()
    for name in ("my_plugins.py", "test_my_plugins.py"):
        (tmp_path / name).write_text("\n".join(_named_blocks(page, "python", name)))
    facts = tmp_path / "my_plugins-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugins\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(_entry_points(*_named_blocks(page, "toml", "pyproject.toml")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_my_plugins.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def _named_blocks(page: str, language: str, name: str) -> list[str]:
    blocks = re.findall(rf"^```{language}\n# {re.escape(name)}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks, f"the page has no block of {name}"
    return [str(block) for block in blocks]


def _entry_points(text: str) -> str:
    groups = tomllib.loads(text)["project"]["entry-points"]
    return "\n".join(
        line
        for group, points in groups.items()
        for line in [f"[{group}]", *(f"{name} = {address}" for name, address in points.items())]
    )
