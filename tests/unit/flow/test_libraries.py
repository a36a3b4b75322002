"""What the modules of steps import, beside each other."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from trek.flow.libraries import libraries_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_helper.py").write_text("import numpy.linalg\nfrom yaml import safe_load\n")
    (tmp_path / "own_steps.py").write_text(
        "import json\nfrom own_helper import safe_load\nimport own_helper\n\ndef f(): ...\n"
    )
    return tmp_path


def test_libraries_of_the_project_are_found_through_its_modules(project: Path) -> None:
    steps = importlib.import_module("own_steps")
    found = libraries_of([steps.f])
    assert {"json", "numpy", "yaml"} <= set(found)
    assert not {"own_helper", "own_steps"} & set(found)


def test_a_callable_without_a_module_has_none() -> None:
    class Callable:
        __module__ = None  # type: ignore[assignment]

        def __call__(self) -> None: ...

    assert libraries_of([Callable()]) == []
