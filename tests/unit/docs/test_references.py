"""The generated references are complete, and the pages refer to what exists."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

import trek.data
import trek.flow
import trek.search
import trek.serve
from trek.cli.main import trek as command_line
from trek.experiments.config_schema import config_schema
from trek.experiments.config_spelling import OLD_KEYS
from trek.search.searcher_settings import OLD_KEYS as OLD_SEARCHER_KEYS
from trek.train.settings import TrainSettings

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


@pytest.fixture(scope="module")
def hook() -> Iterator[ModuleType]:
    """The program that writes the generated parts, imported as it imports its own."""
    before = set(sys.modules)
    sys.path.insert(0, str(DOCS / "generate"))
    try:
        yield importlib.import_module("references")
    finally:
        sys.path.remove(str(DOCS / "generate"))
        for name in [n for n in set(sys.modules) - before if n in {p.stem for p in (DOCS / "generate").glob("*.py")}]:
            del sys.modules[name]


@pytest.mark.parametrize(
    "module", [trek, trek.data, trek.flow, trek.search, trek.serve], ids=lambda module: str(module.__name__)
)
def test_every_public_name_is_in_the_reference(module: ModuleType) -> None:
    text = (DOCS / "reference.md").read_text()
    addresses = {f"{module.__name__}.{name}" for name in module.__all__}
    shown = {*re.findall(r"^### (\S+)$", text, re.MULTILINE), *re.findall(r"^`(\S+)`", text, re.MULTILINE)}
    assert addresses - shown == set()


def test_every_suite_of_the_package_is_in_the_reference() -> None:
    text = (DOCS / "reference.md").read_text()
    for path in (ROOT / "src" / "trek" / "testing").glob("*.py"):
        for name in re.findall(r"^class (\w+(?:Conformance|Suite))\b", path.read_text(), re.MULTILINE):
            assert f"### trek.testing.{path.stem}.{name}\n" in text


def test_every_command_and_option_is_in_the_reference() -> None:
    text = (DOCS / "cli.md").read_text()
    headings = re.findall(r"^##+ (trek.*)$", text, re.MULTILINE)
    sections = dict(zip(headings, re.split(r"^##+ trek.*$", text, flags=re.MULTILINE)[1:], strict=True))
    for context in _commands(click.Context(command_line, info_name="trek")):
        section = sections[context.command_path]
        for option in context.command.params:
            if isinstance(option, click.Option) and "--help" not in option.opts:
                assert option.opts[-1] in section
                assert option.help, f"{context.command_path} {option.opts[-1]} has no help text"


def test_every_key_of_a_config_has_a_meaning_and_is_in_the_reference() -> None:
    text = (DOCS / "config.md").read_text()
    schema = config_schema()
    for title, section in {"config": schema, **schema["$defs"]}.items():
        for key, one in section.get("properties", {}).items():
            if title in ("LengthSetting", "ProfileSettings") or "const" in one:
                continue
            assert one.get("description") or "$ref" in one, f"{title}.{key} has no description"
            assert re.search(rf"[`.]{key}(`|\.|:)|^## {key}$", text, re.MULTILINE), f"{title}.{key} is not on the page"


def test_every_setting_of_training_is_in_the_table() -> None:
    text = (DOCS / "training.md").read_text()
    for name, field in TrainSettings.model_fields.items():
        [row] = re.findall(rf"^\| `{name}` \|.*$", text, re.MULTILINE)
        assert field.description
        assert field.description in row


def test_every_old_spelling_is_in_the_reference() -> None:
    table = (DOCS / "config.md").read_text().partition("## Other spellings")[2]
    for key in {key for keys in OLD_KEYS.values() for key in keys} | OLD_SEARCHER_KEYS:
        assert re.search(rf"\b{key}\b", table), f"{key} is not in the table"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.stem))
def test_links_of_a_page_exist_and_its_generated_parts_are_what_the_code_says(page: Path, hook: ModuleType) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (DOCS / link).exists(), f"{page.name} links to {link}"
    assert hook.renewed(text) == text, "run `make references`"


def test_the_first_page_and_the_readme_link_to_every_guide() -> None:
    guides = {page.name for page in PAGES} - {"index.md"}
    for page, folder in ((DOCS / "index.md", ""), (ROOT / "README.md", "docs/")):
        assert guides - {one.removeprefix(folder) for one in re.findall(r"\]\(([^)#:]+)\)", page.read_text())} == set()


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(_pages(site["nav"])) == [page.name for page in PAGES]


def test_the_table_of_families_names_classes_that_exist() -> None:
    table = re.findall(r"^\|.*\|$", (DOCS / "plugins.md").read_text(), re.MULTILINE)
    for row in table[2:]:
        base, suite = (
            re.findall(r"`(trek\.[\w.]+)`", row.split("|", 4)[4])[:1],
            re.findall(r"`(trek\.testing[\w.]+)`", row),
        )
        for address in [*base, *suite]:
            assert _resolve(address) is not None


def test_the_paths_and_modules_of_the_architecture_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    files = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    assert [path for path in files if not any((at / path).exists() for at in (ROOT, ROOT / "src" / "trek"))] == []
    for address in re.findall(r"`(?:trek\.)?((?:\w+\.){1,3}\w+)`", text):
        if address.split(".")[0] in {path.name for path in (ROOT / "src" / "trek").iterdir()}:
            assert _resolve(f"trek.{address}") is not None


def _resolve(address: str) -> Any:
    """What an address stands for, imported as a reader would."""
    parts = address.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{address} does not exist")


def _commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from _commands(click.Context(command, info_name=name, parent=context))


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, Mapping) else nav if isinstance(nav, list) else ():
        yield from _pages(part)


def test_no_page_holds_a_merge_that_was_not_finished() -> None:
    marks = re.compile(r"^(<{7}|={7}$|>{7})", re.MULTILINE)
    assert [page.name for page in [*PAGES, *ROOT.glob("*.md")] if marks.search(page.read_text())] == []
