"""A home with its control plane for whole-command tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.testing.shell import Shell

MODEL = Path(__file__).parent / "model"


@pytest.fixture(autouse=True)
def _warm(warm_dir: Path) -> None:
    """Whole commands start processes as they do for a user."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A home of the test's own."""
    made = Shell(tmp_path / "own-home", tmp_path, MODEL)
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def shared_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One home for the tests of a module that do not disturb each other."""
    folder = tmp_path_factory.mktemp("shared")
    made = Shell(folder / "home", folder, MODEL)
    yield made
    made.clean_up()
