"""The tables of other projects' names: what they call covered exists, and the scripts of the examples use it."""

from __future__ import annotations

import importlib

import pytest

from trek.compat.names import PROJECTS, ModuleNames

MODULES = [one for names in PROJECTS.values() for one in names]


@pytest.mark.parametrize("module", [one for one in MODULES if one.here], ids=lambda one: one.original)
def test_every_covered_name_exists(module: ModuleNames) -> None:
    assert module.here is not None
    found = importlib.import_module(module.here)
    for name in module.covered:
        if not hasattr(found, name):
            importlib.import_module(f"{module.here}.{name}")  # a module within it


@pytest.mark.parametrize("module", MODULES, ids=lambda one: one.original)
def test_a_name_is_covered_or_missing_with_a_reason(module: ModuleNames) -> None:
    assert not set(module.covered) & set(module.missing)
    assert all(module.covered.values())
    assert all(module.missing.values())
    assert module.here or not module.covered


def test_a_module_is_described_once() -> None:
    originals = [one.original for one in MODULES]
    assert len(set(originals)) == len(originals)
