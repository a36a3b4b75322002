"""The reference of the Python names as Markdown for mkdocstrings, from what each public module lists."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

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
    parts += [f"Returned by `{source}`:\n\n{_directive(path)}" for path, source in RETURNED.items()]
    parts += ["## Base classes of plug-ins", *map(_directive, BASES)]
    parts += ["## Conformance suites", *(_directive(path, members=False) for path in SUITES)]
    return "\n\n".join(parts)


def _module(name: str, title: str) -> Iterator[str]:
    yield f"## {name}: {title}"
    module = importlib.import_module(name)
    for attribute in sorted(module.__all__, key=str.lower):
        value = getattr(module, attribute)
        path = f"{name}.{attribute}"
        if attribute == "__version__":
            yield f"`{path}`: the version of Trek, as text."
        elif path in MODULES:
            yield f"`{path}`: see [below](#{path.replace('.', '')}-{MODULES[path].lower().replace(' ', '-')})."
        elif isinstance(value, ModuleType):
            yield _directive(value.__name__, heading=path)
        else:
            yield _directive(path)


def _directive(path: str, *, heading: str = "", members: bool = True) -> str:
    lines = [f"::: {path}", "    options:", "      heading_level: 3"]
    if heading:
        lines += [f'      heading: "{heading}"', f'      toc_label: "{heading}"']
    if not members:
        lines.append("      members: false")
    return "\n".join(lines)
