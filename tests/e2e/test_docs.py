"""The pages do what they show: their blocks run, in order, in an empty folder with a home of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.testing.pages import RUNNABLE, read_page
from trek.testing.shell import Shell

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
FILES = {path.stem: path for path in [ROOT / "README.md", *DOCS.glob("*.md")]}
PAGES = sorted(FILES)
INSTALLED = "plugins"
"""A page whose blocks are the files of a package, with tests of its own."""
NOT_RUN = {
    "README": 4,
    "cluster": 3,
    "data": 1,
    "distributed": 1,
    "elastic": 4,
    "experiments": 3,
    "flow": 1,
    "index": 1,
    "integrations": 2,
    "parameter-servers": 5,
    "security": 1,
    "serving": 2,
    "web": 1,
}
"""Blocks that cannot run in the tests; each says why on its page."""


@pytest.fixture
def page_shell(tmp_path: Path) -> Iterator[Shell]:
    """A home, and a folder of its own beside it, as a reader would start with."""
    folder = tmp_path / "folder"
    folder.mkdir()
    made = Shell(tmp_path / "home", folder, folder)
    yield made
    made.clean_up()


@pytest.mark.parametrize("page", [page for page in PAGES if page != INSTALLED])
def test_the_blocks_of_a_page_run_and_give_what_it_says(page: str, page_shell: Shell) -> None:
    if page == "README":  # its reader is in a clone
        (page_shell.folder / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "trek.testing.pages", str(FILES[page])],
        cwd=page_shell.folder,
        env=page_shell.env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_what_does_not_run_says_why_and_is_counted() -> None:
    blocks = {page: read_page(FILES[page].read_text()) for page in PAGES}
    left_out = Counter(page for page, found in blocks.items() for block in found if block.not_run)
    assert left_out == NOT_RUN


def test_every_guide_has_blocks_that_run() -> None:
    shown = {page for page in PAGES if any(b.language in RUNNABLE for b in read_page(FILES[page].read_text()))}
    assert set(PAGES) - shown == {"architecture"}


def test_the_package_on_the_page_about_plugins_passes_its_own_tests(tmp_path: Path) -> None:
    page = FILES[INSTALLED].read_text()
    blocks = read_page(page)
    assert {block.file for block in blocks} == {"my_plugins.py", "test_my_plugins.py", "pyproject.toml"}
    for name in ("my_plugins.py", "test_my_plugins.py"):
        (tmp_path / name).write_text("\n".join(block.text for block in blocks if block.file == name))
    facts = tmp_path / "my_plugins-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugins\nVersion: 1.0\n")
    [project] = [block.text for block in blocks if block.file == "pyproject.toml"]
    (facts / "entry_points.txt").write_text(_entry_points(project))
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


def test_the_readme_links_to_files_that_exist() -> None:
    text = FILES["README"].read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def _entry_points(text: str) -> str:
    groups = tomllib.loads(text)["project"]["entry-points"]
    return "\n".join(
        line
        for group, points in groups.items()
        for line in [f"[{group}]", *(f"{name} = {address}" for name, address in points.items())]
    )
