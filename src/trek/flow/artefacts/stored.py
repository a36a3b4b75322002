"""Stored: the record of one artefact, with what is needed to load it and to tell whether it is still as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.fingerprints import FileFacts, digest_text, find_change, take_inventory
from trek.flow.artefacts.base import ArtefactKind
from trek.registry import Registry

_ARTEFACTS = "trek.flow.artefacts"

KINDS: Registry[type[ArtefactKind]] = Registry(
    "artefacts",
    {
        "json": f"{_ARTEFACTS}.plain:PlainKind",
        "path": f"{_ARTEFACTS}.paths:PathKind",
        "array": f"{_ARTEFACTS}.arrays:ArrayKind",
        "tensor": f"{_ARTEFACTS}.arrays:TensorKind",
        "arrow": f"{_ARTEFACTS}.tables:ArrowKind",
        "table": f"{_ARTEFACTS}.tables:TableKind",
        "checkpoint": f"{_ARTEFACTS}.checkpoints:CheckpointKind",
        "list": f"{_ARTEFACTS}.lists:ListKind",
    },
    word="artefact kind",
    base=f"{_ARTEFACTS}.base:ArtefactKind",
)
"""Asked in this order, which of them accepts a value; those of other packages last."""


@dataclass(frozen=True)
class Stored:
    """One artefact: its kind, facts and contents. `folder` is None when its facts hold it or it is elsewhere."""

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
        """Where its files are."""
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


NOTHING = Stored("json", {"json": "null"}, digest_text("json:{'json': 'null'}"), None, ())
"""None, as a step stores it."""


def kind_of(name: str) -> ArtefactKind:
    """The kind called `name`."""
    return KINDS.load(name)()


def spell(value: Any) -> str:
    """What replaces a reference in a text: a number or text as it is, of an artefact the one it holds."""
    found = value.load() if isinstance(value, Stored) else value
    if not isinstance(found, str | int | float | bool | Path):
        raise InputError(
            f"only a number or text can be part of a text, and the step returned a {type(found).__name__}. "
            "Use the path of the result, ${step.path} in YAML."
        )
    return str(found)


def store_value(value: Any, folder: Path, *, digest: str | None = None) -> Stored:
    """Write `value` into `folder` as its kind does, and record what is there.

    A `digest` identifies what is kept for one run only: it need not survive a crash, and is not read for a checksum.
    """
    name, kind = _find_kind(value)
    if digest is None:
        return _record(name, kind.save(value, folder), folder)
    facts = kind.save_briefly(value, folder)
    brief = Stored(name, facts, digest_text(digest), str(folder), ())
    return brief if folder.exists() else _record(name, facts, folder)


def _find_kind(value: Any) -> tuple[str, ArtefactKind]:
    for name in KINDS.in_order():
        kind = kind_of(name)
        if kind.accepts(value):
            return name, kind
    raise InputError(
        f"a step cannot return a {type(value).__module__}.{type(value).__qualname__}. Return plain data, a Path, an "
        "array, a tensor, a Table or a Checkpoint; of a model, its state_dict()."
    )


def join_parts(parts: Sequence[Stored]) -> Stored:
    """Several artefacts as one that is the list of their values. For the time of a run: records hold the parts."""
    digest = digest_text(repr([part.digest for part in parts]))
    return Stored("list", {"parts": list(parts)}, digest, None, ())


def _record(name: str, facts: dict[str, Any], folder: Path) -> Stored:
    root = Path(facts["external"]) if "external" in facts else folder if folder.exists() else None
    if root is None:
        return Stored(name, facts, digest_text(f"{name}:{facts}"), None, ())
    files = take_inventory(root)
    names = {key: value for key, value in facts.items() if key != "external"}
    digest = digest_text(f"{name}:{sorted(names.items())}:{[(file.name, file.sha256) for file in files]}")
    return Stored(name, facts, digest, None if "external" in facts else str(folder), tuple(files))
