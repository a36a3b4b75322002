"""The web page in the package: a wheel holds it, and without npm Trek installs and says how to build it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trek.master.web_page import FOLDER
from trek.testing.web_site import why_no_page

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
PAGE = "trek/master/page/index.html"
ASK = """
from fastapi import FastAPI
from fastapi.testclient import TestClient
from trek.master.web_page import FOLDER, make_router
app = FastAPI()
app.include_router(make_router())
answer = TestClient(app).get("/")
print(FOLDER, answer.status_code, answer.text)
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The source tree without what was built or downloaded."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in FILES:
        shutil.copy(REPOSITORY / name, folder)
    for name in ("src", "web"):
        shutil.copytree(
            REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("node_modules", "page", "__pycache__")
        )
    return folder


def test_without_npm_trek_installs_and_its_address_says_how_to_build_the_page(tree: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    # The discard port of this machine: nobody listens.
    unreachable = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_fetch_retries": "0"}
    done = _pip("install", "-v", "--no-deps", "--target", str(installed), str(tree), **unreachable)
    assert "The web page is not built: npm install" in done.stderr, done.stdout + done.stderr
    assert not (installed / PAGE).exists()
    asked = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    folder, status, text = asked.stdout.split(" ", 2)
    assert Path(folder).is_relative_to(installed)
    assert status == "503"
    assert "make web" in text


@pytest.mark.skipif(bool(why_no_page(FOLDER)), reason=why_no_page(FOLDER))
def test_a_wheel_holds_the_page(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tree / "src" / "trek" / "master" / "page")  # the same sources: it is not built again
    _pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(tree), npm_config_registry="http://127.0.0.1:9/")
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert PAGE in names
    assert any(name.startswith("trek/master/page/assets/") and name.endswith(".js") for name in names)
    assert not any("node_modules" in name for name in names)


def _pip(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Without an environment of the build's own, for which packages would have to be downloaded."""
    command = [sys.executable, "-m", "pip", arguments[0], "--no-build-isolation", "--no-index", *arguments[1:]]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
