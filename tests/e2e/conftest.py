"""A home with its control plane for whole-command tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trek.testing.browser import open_browser
from trek.testing.shell import Shell
from trek.testing.web_site import Visits, WebSite, open_site, open_visits

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, _warm_dir: Path) -> Iterator[WebSite]:
    """One master for the tests of a module that look at the web page."""
    folder = tmp_path_factory.mktemp("web")
    with open_site(Shell(folder / "home", folder, MODEL, {"TREK_WARM_DIR": str(_warm_dir)})) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for them."""
    with open_browser() as made:
        yield made


@pytest.fixture
def open_page(site: WebSite, browser: Any) -> Iterator[Visits]:
    """Opens places of the page as the home's owner; fails for whatever the console complains about."""
    with open_visits(site, browser) as visits:
        yield visits
