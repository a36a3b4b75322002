"""Every name that a script of benchmarks/ takes from Trek, a neighbour or an example exists there. Found with ast.

Nothing is imported or run: peers of the benchmarks may not be installed.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BENCHMARKS, SOURCE, EXAMPLES = REPOSITORY / "benchmarks", REPOSITORY / "src", REPOSITORY / "examples"
PEERS = {"accelerate", "datasets", "lightning", "litserve", "metaflow", "mlflow", "prefect", "ray", "torchft"}
"""Packages that only benchmarks need, and that may be missing here."""


def unresolved(script: Path) -> list[str]:
    """What `script` imports or uses as `module.name` that is nowhere."""
    tree = ast.parse(script.read_text())
    folders = _folders(script)
    modules: dict[str, Path] = {}
    missing: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                missing += _unresolved_module(alias.name, folders)
                if (found := _find(alias.name.partition(".")[0], folders)) is not None:
                    modules[alias.asname or alias.name.partition(".")[0]] = found
        elif isinstance(node, ast.ImportFrom):
            missing += _unresolved_names(node, folders)
    return missing + [text for text in _chains(tree, modules) if text]


def _folders(script: Path) -> list[Path]:
    """Where its imports are looked for: beside it, above it for a peer's script, and in folders of examples."""
    above = [script.parent.parent] if script.parent.name == "peers" else []
    return [SOURCE, script.parent, *above, *sorted(path for path in EXAMPLES.iterdir() if path.is_dir())]


def _find(module: str, folders: list[Path]) -> Path | None:
    """The file or folder of a module that is ours."""
    for folder in folders:
        place = folder.joinpath(*module.split("."))
        if place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
        if place.is_dir() and any(place.glob("*.py")):
            return place
    return None


def _unresolved_module(module: str, folders: list[Path]) -> list[str]:
    root = module.partition(".")[0]
    if _find(root, folders) is None:
        is_known = root in sys.stdlib_module_names | PEERS or importlib.util.find_spec(root) is not None
        return [] if is_known else [f"module {module}"]
    return [] if _find(module, folders) is not None else [f"module {module}"]


def _unresolved_names(node: ast.ImportFrom, folders: list[Path]) -> list[str]:
    assert node.module is not None, "scripts import nothing relative to themselves"
    place = _find(node.module, folders)
    if place is None:
        return _unresolved_module(node.module, folders)
    known = _names(place)
    return [f"{alias.name} of {node.module}" for alias in node.names if alias.name not in known]


def _chains(tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    """`trek.data.opne`: what is used of a module that was imported whole."""
    for node in ast.walk(tree):
        parts = _attributes(node)
        place = modules.get(parts[0]) if parts else None
        for name in parts[1:]:
            if place is None:
                break
            if name not in _names(place):
                yield f"{name} in {'.'.join(parts)}"
            place = _find(name, [place]) if place.is_dir() else None


def _attributes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        before = _attributes(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def _names(place: Path) -> set[str]:
    """What a module has: what its file binds, names for type checkers included, and the modules of a package."""
    if place.is_file():
        return set(_bound(ast.parse(place.read_text()).body))
    inside = {path.stem for path in place.glob("*.py")} | {path.name for path in place.iterdir() if path.is_dir()}
    init = place / "__init__.py"
    return inside | (_names(init) if init.is_file() else set())


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _bound([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


@pytest.mark.parametrize("script", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: str(path.relative_to(BENCHMARKS)))
def test_every_name_that_a_benchmark_imports_exists(script: Path) -> None:
    assert unresolved(script) == []


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("from tables import quieten", ["quieten of tables"]),
        ("from tables import set_up", []),
        ("from table import set_up", ["module table"]),
        ("import tables\ntables.quieten()", ["quieten in tables.quieten"]),
        ("from trek.data import Tabel", ["Tabel of trek.data"]),
        ("import trek.dta", ["module trek.dta"]),
        ("import trek\ndef main():\n    trek.data.opne('digits')", ["opne in trek.data.opne"]),
        ("import trek, json\ntrek.fit, trek.data.open, json.loads", []),
        ("import torchft, numpy, os.path", []),
    ],
)
def test_a_name_that_is_nowhere_is_found(tmp_path: Path, code: str, missing: list[str]) -> None:
    (tmp_path / "tables.py").write_text("def set_up() -> None: ...\n")
    (tmp_path / "images.py").write_text(code)
    assert unresolved(tmp_path / "images.py") == missing
