"""Stored: the record of one artefact, with what is needed to load it and to tell whether it is still as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.fingerprints import FileFacts, digest_text, find_change, take_inventory
from trek.flow.artefacts.base import ArtefactKind
from trek.flow.artefacts.composite import find_culprits
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
        "frame": f"{_ARTEFACTS}.frames:FrameKind",
        "bytes": f"{_ARTEFACTS}.frames:BytesKind",
        "composite": f"{_ARTEFACTS}.composite:CompositeKind",
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
        elsewhere = (Stored.from_json(part).find_change() for part in self.facts.get("external_parts", ()))
        own = find_change(self.root, self.files) if self.root else None
        return own or next((change for change in elsewhere if change is not None), None)


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
        return record(name, kind.save(value, folder), folder)
    facts = kind.save_briefly(value, folder)
    brief = Stored(name, facts, digest_text(digest), str(folder), ())
    return brief if folder.exists() else record(name, facts, folder)


def check_storable(value: Any) -> None:
    """Refuse a value that cannot be stored, with the part of it that is the reason."""
    _find_kind(value)


def find_part_kind(value: Any) -> tuple[str, ArtefactKind] | None:
    """The kind of a value that need not be taken apart, with its name."""
    for name in KINDS.in_order():
        if name != "composite" and (kind := kind_of(name)).accepts(value):
            return name, kind
    return None


def _find_kind(value: Any) -> tuple[str, ArtefactKind]:
    try:
        return _search_kind(value)
    except RecursionError:
        raise InputError(
            f"the step returned a {type(value).__name__} that holds itself, or is nested too deeply to be stored. "
            "Return its parts in a list."
        ) from None


def _search_kind(value: Any) -> tuple[str, ArtefactKind]:
    if (found := find_part_kind(value)) is not None:
        return found
    composite = kind_of("composite")
    if composite.accepts(value):
        return "composite", composite
    where, culprit = next(find_culprits(value, find_part_kind))
    what = f"a {type(culprit).__module__}.{type(culprit).__qualname__}"
    said = f"the step returned {what}" if not where else f"the step's result{where} is {what}"
    raise InputError(
        f"{said}, which cannot be stored. Return plain data, bytes, a Path, an array, a tensor, a DataFrame, a Table, "
        "a Checkpoint, or lists, dicts and dataclasses of these; of a model, its state_dict()."
    )


def join_parts(parts: Sequence[Stored]) -> Stored:
    """Several artefacts as one that is the list of their values. For the time of a run: records hold the parts."""
    digest = digest_text(repr([part.digest for part in parts]))
    return Stored("list", {"parts": list(parts)}, digest, None, ())


def record(name: str, facts: dict[str, Any], folder: Path) -> Stored:
    """The record of what a kind wrote into `folder`, or refers to."""
    root = Path(facts["external"]) if "external" in facts else folder if folder.exists() else None
    if root is None:
        return Stored(name, facts, digest_text(f"{name}:{facts}"), None, ())
    files = take_inventory(root)
    names = {key: value for key, value in facts.items() if key not in ("external", "external_parts")}
    if parts := facts.get("external_parts"):
        names["external_parts"] = [part["digest"] for part in parts]
    digest = digest_text(f"{name}:{sorted(names.items())}:{[(file.name, file.sha256) for file in files]}")
    return Stored(name, facts, digest, None if "external" in facts else str(folder), tuple(files))
