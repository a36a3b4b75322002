"""Who may import whom: the table of docs/architecture.md, walked with ast."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trek.control.trials.trial_specs import TRIAL_IMPORTS
from trek.engines.warm.rules import parent_environment
from trek.train.jobs.job import TRAINING_IMPORTS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "trek"

_GROUND = {"errors", "_version", "distribution", "lazy", "registry", "metric_direction", "phases"}
_LOW = _GROUND | {"system", "world", "wire", "engines", "fingerprints"}
_MIDDLE = _LOW | {"data"}
_PARALLEL = _MIDDLE | {"strategies", "elastic", "ps"}
_TRAIN = _PARALLEL | {"train", "nn"}
_EXPERIMENTS = _TRAIN | {"search", "client", "experiments"}

# room -> rooms it may import, itself always included
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_version": set(),
    "lazy": set(),
    "distribution": {"errors", "_version"},
    "metric_direction": set(),
    "phases": set(),
    "registry": {"errors", "distribution"},
    "fingerprints": {"errors"},
    "system": _GROUND,
    "world": _GROUND,
    "wire": _GROUND | {"system", "world"},
    "engines": _GROUND | {"system", "world"},
    "listening": _GROUND | {"system", "world"},
    "search": _GROUND,
    "client": _GROUND | {"system", "world"},
    "data": _LOW,
    "strategies": _PARALLEL,
    "elastic": _PARALLEL,
    "ps": _PARALLEL,
    "nn": _PARALLEL,
    "train": _TRAIN,
    "experiments": _EXPERIMENTS,
    "control": _EXPERIMENTS | {"flow", "control"},
    "master": _EXPERIMENTS | {"control", "listening", "master"},
    "flow": _MIDDLE | {"client"},
    "serve": _MIDDLE | {"train", "listening"},
    "integrations": _TRAIN | {"search", "serve"},
    "compat": _GROUND | {"data", "integrations", "serve"},
    "clusters": _GROUND,
}
ON_TOP = {"cli", "testing", "__init__", "__main__"}

NO_TORCH = [
    "search",
    "client",
    "experiments/config.py",
    "train/length.py",
    "system",
    "world",
    "wire/connections.py",
    "wire/frames.py",
    "wire/secret.py",
    "engines",
    "fingerprints",
    "errors.py",
    "__init__.py",
]
HEAVY = {"torch", "pyarrow"}


def _modules() -> Iterator[Path]:
    yield from sorted(SOURCE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(tree: ast.Module, *, top_level_only: bool) -> Iterator[str]:
    nodes = _top_level(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "trek":
                yield from (f"trek.{alias.name}" for alias in node.names)
            else:
                yield node.module


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run at import: not inside functions, not under TYPE_CHECKING."""
    stack: list[ast.stmt] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            stack.extend(node.orelse)
            continue
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            stack.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


@pytest.mark.parametrize("path", list(_modules()), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    room = _room(path)
    if room in ON_TOP:
        return
    assert room in ALLOWED, f"{room} is not a room of the design"
    for name in _imports(ast.parse(path.read_text()), top_level_only=False):
        if name.startswith("trek."):
            target = name.split(".")[1]
            public = target not in {p.stem for p in SOURCE.iterdir()}  # `from trek import Trial`
            assert public or target in ALLOWED[room] | {room}, f"{path.name} of room {room} imports {name}"


@pytest.mark.parametrize("path", sorted((SOURCE / "compat").rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_other_projects_names_are_made_of_public_ones(path: Path) -> None:
    faces = {"trek.errors", "trek.lazy", "trek.data.preparation", "trek.serve"}
    rooms = ("trek.compat", "trek.integrations.")
    for name in _imports(ast.parse(path.read_text()), top_level_only=False):
        assert not name.startswith("trek.") or name in faces or name.startswith(rooms), f"{path}: {name}"


@pytest.mark.parametrize("part", NO_TORCH)
def test_light_parts_load_no_torch_and_no_arrow(part: str) -> None:
    paths = [SOURCE / part] if part.endswith(".py") else sorted((SOURCE / part).rglob("*.py"))
    for path in paths:
        roots = {name.split(".")[0] for name in _imports(ast.parse(path.read_text()), top_level_only=True)}
        assert not roots & HEAVY, f"{path} imports {roots & HEAVY} when loaded"


@pytest.mark.parametrize(
    ("imports", "worker"),
    [(TRAINING_IMPORTS, "trek.train.jobs.job_worker"), (TRIAL_IMPORTS, "trek.experiments.trial_worker")],
    ids=["jobs", "trials"],
)
def test_what_workers_import_starts_no_thread(imports: tuple[str, ...], worker: str) -> None:
    """A warm parent imports it and forks: with pyarrow, which starts a thread, no worker would be started warm."""
    code = "import importlib, os, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    show = "print([open(f'/proc/self/task/{one}/comm').read().strip() for one in os.listdir('/proc/self/task')])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('pyarrow' in sys.modules); {show}", *imports, worker],
        env=parent_environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["False", "['python']"]


def test_no_file_is_over_800_lines() -> None:
    for path in _modules():
        assert len(path.read_text().splitlines()) <= 800, f"{path} is too long: split it"
