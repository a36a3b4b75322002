"""Carrying artefacts to and from a step on another machine: their files as one archive, and new paths in values.

Paths below a root that is carried begin with `CARRIED` and the number of the root on the way; at the other end they are
below the folder that the archive was unpacked into. Knows nothing of engines.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.fingerprints import take_inventory
from trek.flow.artefacts import Stored

CARRIED = Path("/trek-carried")
_OBJECT_DEPTH = 2  # of `objects/<first digits>/<digest>`

Move = Callable[[Path], Path]


class Inputs:
    """The files that the values of a task refer to. `home` is the folder of the store: paths in it are carried."""

    def __init__(self, home: Path) -> None:
        self._objects = home / "objects"
        self._names: dict[Path, str] = {}

    def packed(self) -> bytes:
        """All files, below the numbers of their roots."""
        return pack({name: root for root, name in self._names.items()})

    def carry(self, value: Any) -> Any:
        """`value` with every stored artefact and every path of the store in it moved to `CARRIED`."""
        return moved_paths(moved(value, self._move), lambda path: self._move(path) if self._is_ours(path) else path)

    def _is_ours(self, path: Path) -> bool:
        return path.is_relative_to(self._objects)

    def carry_text(self, text: str) -> str:
        """A word of a command, with the path of an artefact in it moved."""
        start = text.find(f"{self._objects}/")
        if start < 0:
            return text
        parts = text[start + len(f"{self._objects}/") :].split("/", _OBJECT_DEPTH)
        root = self._objects.joinpath(*parts[:_OBJECT_DEPTH])
        return text[:start] + str(self._move(root)) + "".join(f"/{rest}" for rest in parts[_OBJECT_DEPTH:])

    def _move(self, path: Path) -> Path:
        if self._is_ours(path):
            inner = path.relative_to(self._objects).parts
            root = self._objects.joinpath(*inner[:_OBJECT_DEPTH])
        else:
            root = path
        name = self._names.setdefault(root, str(len(self._names)))
        return CARRIED / name / path.relative_to(root)


def moved(value: Any, move: Move) -> Any:
    """`value` with the folders of the stored artefacts in it replaced by what `move` gives for them."""
    if isinstance(value, Stored):
        return _moved_artefact(value, move)
    if type(value) is dict:
        return {key: moved(inner, move) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(inner, move) for inner in value)
    return value


def moved_paths(value: Any, move: Move) -> Any:
    """`value` with every path in it replaced by what `move` gives for it."""
    if isinstance(value, Path):
        return move(value)
    if type(value) is dict:
        return {key: moved_paths(inner, move) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved_paths(inner, move) for inner in value)
    return value


def _moved_artefact(stored: Stored, move: Move) -> Stored:
    facts = dict(stored.facts)
    if "external" in facts:
        facts["external"] = str(move(Path(facts["external"])))
    if "parts" in facts:
        facts["parts"] = moved(facts["parts"], move)
    if "external_parts" in facts:
        parts = [Stored.from_json(part) for part in facts["external_parts"]]
        facts["external_parts"] = [_moved_artefact(part, move).to_json() for part in parts]
    folder = None if stored.folder is None else str(move(Path(stored.folder)))
    return replace(stored, facts=facts, folder=folder)


def moved_below(place: Path) -> Move:
    """At the other end: from `CARRIED` to below `place`."""
    return lambda path: place / path.relative_to(CARRIED) if path.is_relative_to(CARRIED) else path


def carry_outputs(answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """What a step answered, with its outputs' folders moved, and those folders by their new names."""
    folders: dict[str, Path] = {}
    outputs = [Stored.from_json(one) for one in answer.get("outputs", ())]
    for stored in outputs:
        if "external" in stored.facts or "external_parts" in stored.facts:
            place = stored.facts.get("external") or "a path in it"
            raise InputError(
                f"the step returned {place}, which is on the machine that it ran on. Return a path in "
                "trek.flow.scratch(), which is brought home, or save it to a store by URL."
            )
        if stored.folder is not None:
            folders[str(len(folders))] = Path(stored.folder)
    names = {folder: CARRIED / name for name, folder in folders.items()}
    carried = [moved(stored, lambda path: names[path]).to_json() for stored in outputs]
    return ({**answer, "outputs": carried} if outputs else answer), folders


def bring_home(answer: dict[str, Any], place: Path) -> dict[str, Any]:
    """The answer of a step whose files were unpacked into `place`, with the times that the files have there."""
    outputs = [moved(Stored.from_json(one), moved_below(place)) for one in answer.get("outputs", ())]
    renewed = [_with_times(stored).to_json() for stored in outputs]
    return {**answer, "outputs": renewed} if outputs else answer


def _with_times(stored: Stored) -> Stored:
    if stored.folder is None or not stored.files:
        return stored
    found = take_inventory(Path(stored.folder))
    assert [one.sha256 for one in found] == [one.sha256 for one in stored.files], "files changed on the way"
    return replace(stored, files=tuple(found))


def pack(folders: Mapping[str, Path]) -> bytes:
    """Files and folders as one archive, each under its name; links become what they lead to."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", dereference=True) as archive:
        for name, folder in folders.items():
            archive.add(folder, arcname=name)
    return stream.getvalue()


def unpack(data: bytes, place: Path) -> None:
    """What `pack` packed, below `place`; nothing outside of it is written."""
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(place, filter="data")
