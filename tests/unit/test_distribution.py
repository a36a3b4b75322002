"""The `trek` of the package index is another project, so that nothing may ask for Trek by that name."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from trek._version import __version__
from trek.distribution import DISTRIBUTION, install_command, package_missing

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".ts", ".tsx", ".sh", ""}
ANOTHER_PROJECT = re.compile(
    r"pip3? install\b[^\n`]*?[\s'\"]trek(?![-\w/.])"  # in a command
    r"|['\"]trek(\[[\w,]+\])?\s*[=<>~!]="  # as a requirement, such as those of a model in MLflow
    r"|\bpip(_requirements)?['\"]?\s*[=:]\s*\[[^\]]*['\"]trek(?![-\w/.])"
)


def test_the_distribution_has_the_name_of_the_project() -> None:
    assert PROJECT["name"] == DISTRIBUTION


def test_a_missing_package_is_installed_by_an_extra_of_the_distribution() -> None:
    error = package_missing("lora", "peft", extra="hf")
    assert str(error) == "lora needs the package peft, which is not installed. Run `pip install 'trek-ml[hf]'`."


def test_another_machine_installs_this_version() -> None:
    assert install_command("ray", pinned=True) == f"pip install 'trek-ml[ray]=={__version__}'"


def test_every_extra_that_an_error_names_exists() -> None:
    sources = [path.read_text() for path in (ROOT / "src" / "trek").rglob("*.py")]
    users = "\n".join(text for text in sources if "from trek.distribution import" in text)
    named = set(re.findall(r'(?:extra=|install_command\()["\'](\w+)["\']', users))
    assert "ray" in named
    assert named <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("pip install trek", True),
        ("pip install -U 'trek[ray]'", True),
        ("pip_requirements=[f'trek=={version}']", True),
        ('{"pip": ["torch", "trek"]}', True),
        ("pip install 'trek-ml[ray]'", False),
        ("pip_requirements=['trek-ml==1']", False),
        ("pip install ./trek.whl", False),
    ],
)
def test_what_asks_for_the_other_project(text: str, asks: bool) -> None:
    assert bool(ANOTHER_PROJECT.search(text)) == asks


def test_no_text_asks_for_the_other_project_by_pip() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [ROOT / name for name in listed if Path(name).suffix in TEXTS and (ROOT / name).is_file()]
    asking = {str(path.relative_to(ROOT)) for path in texts if ANOTHER_PROJECT.search(path.read_text(errors="replace"))}
    assert asking - {"tests/unit/test_distribution.py"} == set()
