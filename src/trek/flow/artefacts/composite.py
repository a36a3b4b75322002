"""Composites: lists, tuples, dicts and dataclasses whose parts are of several kinds, each stored as its own kind.

    shape.json    how the parts make up the value, with the kind and facts of each part
    0/ 1/ …       what the kinds of the parts wrote

Classes of dataclasses and named tuples are found again by their names: see `classes`.
"""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trek.flow.artefacts.base import ArtefactKind
from trek.flow.artefacts.classes import find_class, spell_class

SHAPE = "shape.json"
FindKind = Callable[[Any], tuple[str, ArtefactKind] | None]


class CompositeKind(ArtefactKind):
    """A container of values of other kinds."""

    def accepts(self, value: Any) -> bool:
        """Whether it is a container, and all that it holds can be stored."""
        from trek.flow.artefacts.stored import find_part_kind

        return is_container(value) and next(find_culprits(value, find_part_kind), None) is None

    def save(self, value: Any, folder: Path) -> dict[str, Any]:
        """Write every part, and how they are put together."""
        return self._save(value, folder, is_brief=False)

    def save_briefly(self, value: Any, folder: Path) -> dict[str, Any]:
        """The same, with every part written briefly."""
        return self._save(value, folder, is_brief=True)

    def _save(self, value: Any, folder: Path, *, is_brief: bool) -> dict[str, Any]:
        folder.mkdir(parents=True)
        writer = _Writer(folder, is_brief=is_brief)
        document = {"shape": writer.take_apart(value), "parts": writer.parts}
        (folder / SHAPE).write_text(json.dumps(document))
        facts: dict[str, Any] = {"classes": sorted(writer.classes)} if writer.classes else {}
        return {**facts, "external_parts": writer.external_parts} if writer.external_parts else facts

    def load(self, folder: Path, facts: dict[str, Any]) -> Any:
        """Load every part, and put them together."""
        from trek.flow.artefacts.stored import kind_of

        document = json.loads((folder / SHAPE).read_text())
        parts = [
            kind_of(part["kind"]).load(folder / str(index), part["facts"])
            for index, part in enumerate(document["parts"])
        ]
        return put_together(document["shape"], parts)


class _Writer:
    """Writes the parts of one value into a folder; a part that occurs twice is written once."""

    def __init__(self, folder: Path, *, is_brief: bool) -> None:
        self._folder = folder
        self._is_brief = is_brief
        self._known: dict[Any, int] = {}
        self.parts: list[dict[str, Any]] = []
        self.classes: set[str] = set()
        self.external_parts: list[dict[str, Any]] = []

    def take_apart(self, value: Any) -> Any:
        """The shape of `value`, with the numbers of its parts."""
        from trek.flow.artefacts.stored import find_part_kind

        if (found := find_part_kind(value)) is not None:
            return self._write(value, *found)
        if isinstance(value, dict):
            pairs = [[self.take_apart(key), self.take_apart(item)] for key, item in value.items()]
            return {"dict": pairs, "is_ordered": isinstance(value, OrderedDict)}
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.take_apart(item) for item in value]}
        self.classes.add(spelling := spell_class(type(value)))
        return {"class": spelling, "fields": {name: self.take_apart(item) for name, item in _fields(value)}}

    def _write(self, value: Any, name: str, kind: ArtefactKind) -> int:
        from trek.flow.artefacts.stored import record

        same = value if isinstance(value, Path) else id(value)
        if same not in self._known:
            number = self._known[same] = len(self.parts)
            save = kind.save_briefly if self._is_brief else kind.save
            facts = save(value, self._folder / str(number))
            self.parts.append({"kind": name, "facts": facts})
            if "external" in facts:
                self.external_parts.append(record(name, facts, self._folder / str(number)).to_json())
        return self._known[same]


def put_together(shape: Any, parts: list[Any]) -> Any:
    """The value whose shape this is."""
    if isinstance(shape, int):
        return parts[shape]
    if "dict" in shape:
        pairs = ((put_together(key, parts), put_together(item, parts)) for key, item in shape["dict"])
        return OrderedDict(pairs) if shape["is_ordered"] else dict(pairs)
    if "class" in shape:
        fields = {name: put_together(item, parts) for name, item in shape["fields"].items()}
        return _make(find_class(shape["class"]), fields)
    kind, items = next(iter(shape.items()))
    values = [put_together(item, parts) for item in items]
    return tuple(values) if kind == "tuple" else values


def find_culprits(value: Any, find_kind: FindKind, where: str = "") -> Iterator[tuple[str, Any]]:
    """What in `value` cannot be stored, and where it is, such as `['model']`."""
    if find_kind(value) is not None:
        return
    if not is_container(value):
        yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from find_culprits(key, find_kind, f"{where} key {key!r}")
            yield from find_culprits(item, find_kind, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from find_culprits(item, find_kind, f"{where}[{index}]")
    else:
        for name, item in _fields(value):
            yield from find_culprits(item, find_kind, f"{where}.{name}")


def is_container(value: Any) -> bool:
    """Whether `value` is made of parts that can be stored by themselves."""
    return type(value) in (list, tuple, dict, OrderedDict) or _is_record(value)


def _is_record(value: Any) -> bool:
    is_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_dataclass or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _fields(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, tuple):
        return list(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    return [(one.name, getattr(value, one.name)) for one in dataclasses.fields(value) if hasattr(value, one.name)]


def _make(kind: type, fields: dict[str, Any]) -> Any:
    """An instance with these fields. The class's own code does not run: the value was complete when it was stored."""
    if issubclass(kind, tuple):
        return tuple.__new__(kind, fields.values())
    made = object.__new__(kind)
    for name, item in fields.items():
        object.__setattr__(made, name, item)
    return made
