"""What blocks of a page are, and that a page which is wrong fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trek.testing.pages import read_page


def run(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "page.md").write_text(page)
    command = [sys.executable, "-W", "error", "-m", "trek.testing.pages", "page.md"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (block("python", "1 + 1  # → 3"), "the page says 3, and it is 2"),
        (block("python", "x = 1") + "\n" + block("python", "y"), 'page.md", line 6'),
        (block("bash", "false"), "page.md, line 2: exit code 1"),
        (block("bash", "echo one") + block("text", "two"), "page.md, line 2 prints:\none"),
        (block("yaml", "searcher: {name: random}"), "metric"),
    ],
)
def test_a_page_that_is_wrong_fails_with_its_line(page: str, complaint: str, tmp_path: Path) -> None:
    done = run(page, tmp_path)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_a_page_is_one_program_with_files_and_commands(tmp_path: Path) -> None:
    page = [
        block("python", "# mine.py\nVALUE = 3"),
        block("python", "# mine.py\nOTHER = VALUE + 1"),
        block("python", "import mine\nmine.OTHER  # → 4"),
        block("bash", "trek --version && python -c 'import mine; print(mine.VALUE)'"),
        block("text", "trek, version …\n3"),
        block("yaml", "training: {accumulate: 2}"),
        "<!-- not run: it would fail -->\n" + block("python", "1 / 0"),
    ]
    done = run("".join(page), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 python, 1 bash, 1 text, 1 yaml\n"


def test_marks_and_output_belong_to_their_block() -> None:
    page = "<!-- needs: gpu -->\n" + block("python", "1") + "\n" + block("bash", "ls") + "and\n" + block("text", "a")
    first, second, _ = read_page(page)
    assert (first.needs, first.not_run, first.line) == ("gpu", "", 3)
    assert second.prints is None, "what is between them makes it another block"


@pytest.mark.parametrize(
    "page", [block("", "ls"), "- list\n  ```python\n  1\n  ```\n", block("python", "1") + "```python\n1"]
)
def test_a_block_that_would_be_overlooked_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="block"):
        read_page(page)
