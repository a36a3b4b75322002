"""The reference of the Python names as Markdown, from the sources: signatures, docstrings, and those of members."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe

SOURCE = Path(__file__).resolve().parents[2] / "src"

MODULES = {
    "trek": "Training, results and experiments",
    "trek.data": "Data",
    "trek.data.preparation": "Preparation layers",
    "trek.flow": "Pipelines",
    "trek.search": "Searching",
    "trek.serve": "Serving",
    "trek.engines": "Engines",
    "trek.strategies": "Strategies",
    "trek.train.loggers": "Loggers",
}
RETURNED = {
    "trek.train.result.Result": "trek.fit",
    "trek.train.finders.LearningRates": "trek.find_learning_rate",
    "trek.data.plans.windows.Windows": "trek.data.Table.window",
}
"""Classes that are never made by hand, and so have no public address, and what returns them."""
BASES = [
    "trek.train.checkpointing.stores.Storage",
    "trek.data.sources.url_source.UrlSource",
    "trek.data.sources.formats.FileFormat",
    "trek.data.loaders.Loader",
    "trek.data.execution.base.Executor",
    "trek.flow.artefacts.ArtefactKind",
]
"""What plug-ins derive from, besides the classes above."""
SUITES = [
    "trek.testing.artefact_conformance.ArtefactConformance",
    "trek.testing.engine_conformance.EngineConformance",
    "trek.testing.execution_conformance.ExecutorConformance",
    "trek.testing.handler_conformance.HandlerConformance",
    "trek.testing.loader_conformance.LoaderConformance",
    "trek.testing.logger_conformance.LoggerConformance",
    "trek.testing.searchers.SearcherSuite",
    "trek.testing.source_conformance.FormatConformance",
    "trek.testing.source_conformance.SourceConformance",
    "trek.testing.store_conformance.StoreConformance",
    "trek.testing.strategy_conformance.StrategyConformance",
]


def python_reference() -> str:
    """Every public name under the address that people import it from."""
    parts = [part for module, title in MODULES.items() for part in _module(module, title)]
    parts += ["## Returned objects"]
    for path, source in RETURNED.items():
        parts += _described(path, after=f"Returned by `{source}`.")
    parts += ["## Base classes of plug-ins", *(part for path in BASES for part in _described(path))]
    parts += ["## Conformance suites", *(part for path in SUITES for part in _described(path, members=False))]
    return "\n\n".join(parts)


def _module(name: str, title: str) -> Iterator[str]:
    yield f"## {name}: {title}"
    for attribute in sorted(importlib.import_module(name).__all__, key=str.lower):
        path = f"{name}.{attribute}"
        if attribute == "__version__":
            yield f"`{path}`: the version of Trek, as text."
        elif path in MODULES:
            yield f"`{path}`: see [below](#{path.replace('.', '')}-{MODULES[path].lower().replace(' ', '-')})."
        else:
            yield from _described(path)


def _described(path: str, *, after: str = "", members: bool = True) -> Iterator[str]:
    """One public name: its heading, its signature and docstring, and its public members."""
    yield f"### {path}"
    if after:
        yield after
    shown = _find(path)
    yield from _block(shown, path.rpartition(".")[2])
    if not members:
        return
    fields = [(name, one) for name, one in _members(shown) if one.is_attribute and (one.docstring or one.annotation)]
    if fields:
        yield "\n".join(f"- `{_annotated(one, name)}`: {_line(_prose(one))}".removesuffix(": ") for name, one in fields)
    for name, member in _members(shown):
        if not member.is_attribute:
            yield f"#### {path.rpartition('.')[2]}.{name}"
            yield from _block(member, name)


def _members(shown: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    """The public members of a class, inherited ones first, or what a module exports, in the order of the source."""
    if shown.is_class:
        members = {**shown.inherited_members, **shown.members}
    else:
        members = {name: one for name, one in shown.members.items() if name in (shown.exports or ())}
    for name, member in members.items():
        if not name.startswith("_") and (
            not isinstance(member, griffe.Alias) or member.target_path.startswith("trek.")
        ):
            yield name, member.final_target if isinstance(member, griffe.Alias) else member


def _block(shown: griffe.Object, name: str) -> Iterator[str]:
    signature = _signature(shown, name)
    if signature:
        yield f"```pyi\n{signature}\n```"
    if prose := _prose(shown):
        yield prose


def _signature(shown: griffe.Object, name: str) -> str:
    called = shown.all_members.get("__init__", shown) if isinstance(shown, griffe.Class) else shown
    called = called.final_target if isinstance(called, griffe.Alias) else called
    if isinstance(called, griffe.Function | griffe.Class):
        line = str(called.signature(name=name, return_type=called is shown and called.is_function))
        return _wrapped(re.sub(r"\((self|cls)(, )?", "(", line, count=1))
    return _annotated(shown, name) if isinstance(shown, griffe.Attribute) else ""


def _wrapped(line: str) -> str:
    """A long signature with a line for each parameter."""
    if len(line) <= 100:
        return line
    start = line.index("(") + 1
    depth, parts, begin = 0, [], start
    for at in range(start, len(line)):
        if line[at] in "([{":
            depth += 1
        elif line[at] in ")]}":
            if depth == 0:
                parts.append(line[begin:at])
                break
            depth -= 1
        elif line[at] == "," and depth == 0:
            parts.append(line[begin:at])
            begin = at + 2
    return "\n".join([line[:start], *(f"    {part}," for part in parts), line[at:]])


def _annotated(shown: griffe.Object, name: str) -> str:
    """An attribute or property with its type."""
    return f"{name}: {shown.annotation}" if getattr(shown, "annotation", None) else name


def _prose(shown: griffe.Object) -> str:
    return shown.docstring.value.strip() if shown.docstring else ""


def _line(text: str) -> str:
    return " ".join(text.split())


@cache
def _package() -> griffe.Module:
    loaded = griffe.load("trek", search_paths=[SOURCE], resolve_aliases=True, resolve_external=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


def _find(path: str) -> griffe.Object:
    found = _package()[path.removeprefix("trek.")]
    return found.final_target if isinstance(found, griffe.Alias) else found
