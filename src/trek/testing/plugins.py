"""Plug-in packages for tests: written to a folder with real entry points, importable while a block runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trek.registry import Registry


@contextmanager
def plugin_package(
    folder: Path, *, module: str, source: str, entry_points: Mapping[str, Mapping[str, str]], refresh: Registry[Any]
) -> Iterator[None]:
    """The package `module` with this source, as if it were installed; `entry_points` are addresses by group and name.

    `refresh` is the registry that is to find it, and that forgets it afterwards.
    """
    _write(folder, module=module, source=source, entry_points=entry_points)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    refresh.refresh()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
        refresh.refresh()


def _write(folder: Path, *, module: str, source: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    facts = folder / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
    lines: list[str] = []
    for group, addresses in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {address}" for name, address in addresses.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
