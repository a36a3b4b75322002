"""Stored: the record of one artefact, with what is needed to load it and to tell whether it is still as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.flow.artefacts.arrays import ArrayKind, TensorKind
from trek.flow.artefacts.base import ArtefactKind
from trek.flow.artefacts.checkpoints import CheckpointKind
from trek.flow.artefacts.lists import ListKind
from trek.flow.artefacts.paths import PathKind
from trek.flow.artefacts.plain import PlainKind
from trek.flow.artefacts.tables import ArrowKind, TableKind
from trek.flow.contents import FileFacts, digest_text, find_change, take_inventory

_KINDS: dict[str, ArtefactKind] = {
    kind.name: kind
    for kind in (
        PlainKind(),
        PathKind(),
        ArrayKind(),
        TensorKind(),
        ArrowKind(),
        TableKind(),
        CheckpointKind(),
        ListKind(),
    )
}


@dataclass(frozen=True)
class Stored:
    """One artefact: its kind, facts and contents. `folder` is None when its facts hold it or it lies elsewhere."""

    kind: str
    facts: dict[str, Any]
    digest: str
    folder: str | None
    files: tuple[FileFacts, ...]

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Stored:
        """Read back what `to_json` gave."""
        return cls(**{**content, "files": tuple(FileFacts(*one) for one in content["files"])})

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        files = [list(one) for one in self.files]
        return {"kind": self.kind, "facts": self.facts, "digest": self.digest, "folder": self.folder, "files": files}

    @property
    def num_bytes(self) -> int:
        """What its files take."""
        return sum(file.num_bytes for file in self.files)

    @property
    def root(self) -> Path | None:
        """Where its files lie."""
        if "external" in self.facts:
            return Path(self.facts["external"])
        return Path(self.folder) if self.folder else None

    def load(self) -> Any:
        """The value."""
        return kind_of(self.kind).load(Path(self.folder or "."), self.facts)

    def moved_to(self, folder: Path) -> Stored:
        """The same, with its files in another folder."""
        return replace(self, folder=str(folder))

    def path(self) -> Path:
        """The file or folder that holds the value."""
        return kind_of(self.kind).path(Path(self.folder or "."), self.facts)

    def find_change(self) -> str | None:
        """What differs on disk from what was stored; None when nothing does."""
        return find_change(self.root, self.files) if self.root else None


def register_kind(kind: ArtefactKind) -> None:
    """Make a further kind of values known; it is asked before those that are built in."""
    global _KINDS
    _KINDS = {kind.name: kind, **{name: one for name, one in _KINDS.items() if name != kind.name}}


def kind_of(name: str) -> ArtefactKind:
    """The kind called `name`."""
    if name not in _KINDS:
        raise InputError(f"artefact kind {name!r} is not known here. Register it before the flow runs.")
    return _KINDS[name]


def store_value(value: Any, folder: Path, *, digest: str | None = None) -> Stored:
    """Write `value` into `folder` as its kind does, and take down what is there.

    A `digest` names what lasts for one run only: it is written without care for a crash, and not read again for its
    checksum.
    """
    for kind in _KINDS.values():
        if kind.accepts(value):
            if digest is None:
                return _take_down(kind, kind.save(value, folder), folder)
            facts = kind.save_briefly(value, folder)
            brief = Stored(kind.name, facts, digest_text(digest), str(folder), ())
            return brief if folder.exists() else _take_down(kind, facts, folder)
    raise InputError(
        f"a step cannot hand on a {type(value).__module__}.{type(value).__qualname__}. Return plain data, a Path, an "
        "array, a tensor, a Table or a Checkpoint; of a model, its state_dict()."
    )


def join_parts(parts: Sequence[Stored]) -> Stored:
    """Several artefacts as one that is the list of their values. For the time of a run: records hold the parts."""
    digest = digest_text(repr([part.digest for part in parts]))
    return Stored(ListKind.name, {"parts": list(parts)}, digest, None, ())


def _take_down(kind: ArtefactKind, facts: dict[str, Any], folder: Path) -> Stored:
    root = Path(facts["external"]) if "external" in facts else folder if folder.exists() else None
    if root is None:
        return Stored(kind.name, facts, digest_text(f"{kind.name}:{facts}"), None, ())
    files = take_inventory(root)
    names = {key: value for key, value in facts.items() if key != "external"}
    digest = digest_text(f"{kind.name}:{sorted(names.items())}:{[(file.name, file.sha256) for file in files]}")
    return Stored(kind.name, facts, digest, None if "external" in facts else str(folder), tuple(files))
