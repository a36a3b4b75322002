"""Registries find variants of other packages by their entry points, and say which package is at fault."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from trek.errors import ConfigError, InputError
from trek.registry import Registry, takes_fields_of
from trek.testing.plugins import plugin_package

SHAPES: Registry[type] = Registry(
    "shapes",
    {"list": "builtins:list", "missing": "nowhere_at_all:X"},
    word="shape",
    extras={"missing": "nowhere_at_all"},
)
LISTS: Registry[type] = Registry("shapes", {"list": "builtins:list"}, word="shape", base="builtins:list")

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Makes a package with one entry point in the group `trek.shapes` importable until the test ends."""
    with ExitStack() as stack:

        def make(name: str, *, source: str = "class Circle(list): ...", into: Registry[type] = SHAPES) -> None:
            module = f"shapes_{len(list(tmp_path.iterdir()))}"
            points = {"trek.shapes": {name: f"{module}:Circle"}}
            package: AbstractContextManager[None] = plugin_package(
                tmp_path / module, module=module, source=source, entry_points=points, refresh=into
            )
            stack.enter_context(package)

        yield make


def test_a_variant_of_another_package_is_found_and_loaded(install: Install) -> None:
    install("circle")
    assert SHAPES.names() == ["circle", "list", "missing"]
    assert SHAPES.plugin_names() == ["circle"]
    assert SHAPES.load("circle").__name__ == "Circle"


def test_asking_for_names_imports_nothing(install: Install) -> None:
    install("circle", source="raise RuntimeError('imported')")
    assert SHAPES.check("circle") == "circle"


def test_an_unknown_name_is_refused_with_the_names_there_are(install: Install) -> None:
    install("circle")
    with pytest.raises(
        ConfigError,
        match=r"^shape 'cirkle' does not exist\. Did you mean 'circle'\? Use one of: circle, list, missing\.$",
    ):
        SHAPES.load("cirkle")


def test_a_plugin_that_cannot_be_imported_is_one_error_that_names_its_package(install: Install) -> None:
    install("circle", source="raise RuntimeError('out of ink')")
    with pytest.raises(InputError, match=r"shape 'circle' is provided by the package shapes-0.*out of ink.*Update"):
        SHAPES.load("circle")


def test_a_plugin_of_the_wrong_type_is_one_error_that_names_its_package(install: Install) -> None:
    install("circle", source="class Circle: ...", into=LISTS)
    with pytest.raises(InputError, match=r"the package shapes-0, but 'shapes_0:Circle' is not a builtins\.list"):
        LISTS.load("circle")


def test_a_name_of_treks_cannot_be_replaced_and_the_attempt_is_logged(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("list")
    with caplog.at_level(logging.WARNING):
        assert SHAPES.names() == ["list", "missing"]
    assert SHAPES.load("list") is list
    assert "the package shapes-0 offers the shape 'list', which is a name of Trek's own: ignored" in caplog.text


def test_a_name_that_two_packages_provide_is_refused(install: Install) -> None:
    install("circle")
    install("circle")
    with pytest.raises(InputError, match=r"is provided by the package shapes-[01] and the package shapes-[01]"):
        SHAPES.load("circle")


def test_a_missing_optional_package_is_named_with_its_extra() -> None:
    with pytest.raises(InputError, match=r"needs the package nowhere_at_all.*pip install 'trek-ml\[nowhere_at_all\]'"):
        SHAPES.load("missing")


def test_the_fields_of_settings_are_keywords_of_a_function_that_passes_them_on() -> None:
    @dataclass
    class Sizes:
        width: int
        height: int = 2

    @takes_fields_of(Sizes)
    def make(name: str, *, height: int = 3, **sizes: int) -> tuple[str, Sizes]:
        return name, Sizes(height=height, **sizes)

    keywords = inspect.signature(make).parameters
    assert {name: one.default for name, one in keywords.items() if one.kind is one.KEYWORD_ONLY} == {
        "height": 3,
        "width": inspect.Parameter.empty,
    }
    LISTS.check_settings("list", {"width": 1}, taken_by=make)
    with pytest.raises(ConfigError, match=r"has no setting 'depth'\. It has: name, height, width"):
        LISTS.check_settings("list", {"depth": 1}, taken_by=make)
    assert make("a", width=1) == ("a", Sizes(1, 3))
