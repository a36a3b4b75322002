"""The pages that promise to run do run: their Python blocks, in order, as one program in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
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
