"""The table of other projects' public names as Markdown, from `trek.compat.names`."""

from __future__ import annotations

from collections.abc import Iterator

from trek.compat.names import PROJECTS, ModuleNames


def names_reference() -> str:
    """A table for each project: every public name, where it is here, or why it is not."""
    parts = []
    for project, modules in PROJECTS.items():
        parts += [f"### {project}", "", "| name | here | over, or why not |", "|---|---|---|"]
        parts += [row for module in modules for row in _rows(module)]
        parts.append("")
    return "\n".join(parts)


def _rows(module: ModuleNames) -> Iterator[str]:
    for name, over in module.covered.items():
        yield f"| `{module.original}.{name}` | `{module.here}.{name}` | {over} |"
    for name, why in module.missing.items():
        yield f"| `{module.original}.{name}` | – | {why} |"
