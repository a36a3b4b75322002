"""Paths that a step returns, whole however they lie in each other, lead to each other or are repeated."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trek
from trek.errors import InputError
from trek.flow.artefacts import store_value
from trek.flow.performing import perform

FOLDERS = ["a", "a/b", "a/b/c", "d"]
NAMES = ["x", "y", "link"]
PLACES = [f"{folder}/{name}" for folder in (".", *FOLDERS) for name in NAMES]
TARGETS = [*FOLDERS, *PLACES, "outside/f", "outside/g", "nowhere"]


Tree = dict[str, str | None]
TREES = st.dictionaries(st.sampled_from(PLACES), st.one_of(st.none(), st.sampled_from(TARGETS)), max_size=7)
"""What is in the scratch folder: by name, None for a file, else what a link leads to."""


def make_tree(scratch: Path, outside: Path, tree: Tree, *, is_absolute: bool) -> None:
    for folder in FOLDERS:
        (scratch / folder).mkdir(parents=True, exist_ok=True)
    for name, target in tree.items():
        path = scratch / name
        if target is None:
            path.write_text(f"contents of {name}")
        else:
            goal = outside / target if target.startswith("outside") else scratch / target
            path.symlink_to(goal if is_absolute else os.path.relpath(goal, path.parent))


def contents(path: Path, depth: int = 0) -> Any:
    """What a reader finds at `path`; links into themselves are followed a few times."""
    if path.is_dir():
        return {one.name: contents(one, depth + 1) for one in path.iterdir()} if depth < 6 else "deep"
    return path.read_text() if path.exists() else "broken"


def shape(value: Any) -> Any:
    """`value` with what is at each path in its place."""
    if isinstance(value, Path):
        return contents(value)
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else value


SPELT = [".", *FOLDERS, *PLACES, "a/../d", "d/../a/b", "a/link/x", "link/b", "a/b/link/c", "../../../outside/f"]
PATHS = st.sampled_from(SPELT).map(Path)
VALUES = st.recursive(
    st.one_of(PATHS, PATHS, st.integers()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=1), inner, max_size=4)),
    max_leaves=6,
)


def placed(value: Any, scratch: Path) -> Any:
    """`value` with its paths in `scratch`."""
    if isinstance(value, Path):
        return scratch / value
    if isinstance(value, dict):
        return {key: placed(item, scratch) for key, item in value.items()}
    return [placed(item, scratch) for item in value] if isinstance(value, list) else value


@settings(max_examples=120, deadline=None)
@given(st.tuples(VALUES, VALUES), TREES, st.booleans())
def test_returned_paths_are_whole_or_refused(values: tuple[Any, Any], tree: Tree, absolute: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name).resolve()
        attempt, outside = home / "attempts" / "1", home / "outside"
        outside.mkdir()
        (outside / "f").write_text("f outside")
        (outside / "g").mkdir()
        make_tree(attempt / "scratch", home, tree, is_absolute=absolute)
        returned = [placed(value, attempt / "scratch") for value in values]
        before, outside_before = shape(returned), contents(outside)
        stored, refusal = [], ""
        try:
            stored = [store_value(value, attempt / f"output_{number}") for number, value in enumerate(returned)]
        except InputError as error:
            refusal = str(error)
        assert contents(outside) == outside_before
        if refusal:
            assert "which it lies in" in refusal or "does not exist" in refusal
            return
        shutil.rmtree(attempt / "scratch")
        moved = shutil.move(attempt, home / "store")
        loaded = [one.moved_to(moved / Path(one.folder).name) if one.folder else one for one in stored]
        assert shape([one.load() for one in loaded]) == before


@pytest.mark.parametrize("order", [("folder", "model"), ("model", "folder")])
def test_a_file_and_the_folder_it_lies_in_are_both_whole(order: tuple[str, str], tmp_path: Path) -> None:
    def save() -> tuple[Path, Path]:
        folder = trek.flow.scratch() / "out"
        folder.mkdir()
        for name in ("model.bin", "vocab.txt"):
            (folder / name).write_text(name)
        made = {"folder": folder, "model": folder / "model.bin"}
        return made[order[0]], made[order[1]]

    for num_outputs in (1, 2):
        attempt = tmp_path / str(num_outputs) / "attempts" / "1"
        result = perform(save, (), {}, num_outputs=num_outputs, attempt=attempt)
        shutil.rmtree(attempt / "scratch")
        stored = [trek.flow.artefacts.Stored.from_json(one).load() for one in result["outputs"]]
        made = dict(zip(order, stored[0] if num_outputs == 1 else stored, strict=True))
        assert made["model"].read_text() == "model.bin"
        assert contents(made["folder"]) == {"model.bin": "model.bin", "vocab.txt": "vocab.txt"}


def test_the_attempts_own_folder_is_refused(tmp_path: Path) -> None:
    attempt = tmp_path / "attempts" / "1"
    attempt.mkdir(parents=True)
    with pytest.raises(InputError, match=r"of its own results\. Return a path in it"):
        store_value(attempt, attempt / "output_0")
