"""Reader: walks from one value to everything it reaches, and gives each part of code a name and a digest.

Functions, classes and modules of the project become parts of their own, each once, and are referred to by name; so are
the constants they use. Everything else is spelled where it is, by the rules in `code` and `objects`.
"""

from __future__ import annotations

import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trek.errors import OutsideError
from trek.fingerprints import code, objects
from trek.fingerprints.contents import digest_place, digest_text
from trek.fingerprints.naming import type_name

PLAIN = (type(None), bool, int, float, complex, str, bytes)


class NamedFile(NamedTuple):
    """A file or folder that is reached as a path: by what it is called, where it is, and what it holds."""

    name: str
    path: Path
    digest: str


class Reader:
    """One walk. Parts are found in an order that depends on the code alone, so that numbered names are stable."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self._unknown: dict[str, None] = {}
        self._files: dict[Path, NamedFile] = {}
        self._labels: dict[Any, str] = {}
        self._taken: set[str] = set()
        self._spelled: dict[int, str] = {}
        self._path: dict[int, int] = {}
        self._kept: list[Any] = []
        self._later: deque[tuple[str, Callable[[], Iterable[str]], bool]] = deque()
        self._nonce = uuid.uuid4().hex
        self.is_in_library = False
        """Whether a library's function is being read, such as a decorator: what it keeps for itself does not count."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """What could not be fingerprinted."""
        return tuple(self._unknown)

    @property
    def files(self) -> tuple[NamedFile, ...]:
        """The files and folders that were reached as paths."""
        return tuple(self._files.values())

    def add_file(self, path: Path, *, where: str) -> None:
        """Add what a path leads to."""
        if path in self._files:
            return
        try:
            self._files[path] = NamedFile(where, path, digest_place(path))
        except OutsideError as error:
            self._files[path] = NamedFile(where, path, self.mark_unknown(f"{where} ({str(error).rstrip('.')})"))

    def merge(self, other: Reader) -> None:
        """Take over what another walk found besides its parts."""
        for one in other.unknown:
            self.mark_unknown(one)
        for file in other.files:
            self._files.setdefault(file.path, file)

    def read(self, value: Any, *, label: str) -> None:
        """Add `value` as a part called `label`, with everything it reaches."""
        label, _ = self.claim(label, key=("read", label))
        try:
            self.parts[label] = self.spell(value, where=label)
        except RecursionError:
            self.parts[label] = self.mark_unknown(f"{label}, which is nested too deeply")
        while self._later:
            name, tokens, self.is_in_library = self._later.popleft()
            try:
                self.parts[name] = digest_text(repr(list(tokens())))
            except RecursionError:
                self.parts[name] = self.mark_unknown(f"a value of {name}, which is nested too deeply")

    def read_later(self, label: str, tokens: Callable[[], Iterable[str]], *, is_library: bool) -> None:
        """Add the part `label` when what is being read is done: code may call code to any depth."""
        self._later.append((label, tokens, is_library))

    def spell(self, value: Any, *, where: str) -> str:
        """Text that is equal for equal values and different for different ones; `where` is for messages."""
        if type(value) in PLAIN:
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, types.FunctionType | type | types.ModuleType):
            return code.refer(self, value)
        if id(value) in self._spelled:
            return self._spelled[id(value)]
        if id(value) in self._path:
            return f"up {len(self._path) - self._path[id(value)]}"
        self._kept.append(value)  # an id must not be used again while this walk lasts
        self._path[id(value)] = len(self._path)
        try:
            text = digest_text(repr(objects.spell(self, value, where)))
        finally:
            del self._path[id(value)]
        self._spelled[id(value)] = text
        return text

    def use(self, value: Any, *, label: str, key: Any) -> str:
        """Refer to code, or make a part called `label` of a constant; returns what refers to it."""
        if isinstance(value, types.FunctionType | type | types.ModuleType):
            return code.refer(self, value)
        if hasattr(type(value), "__get__"):  # a property, a cached function …: its functions are parts
            return self.spell(value, where=label)
        name, is_new = self.claim(label, key=key)
        if is_new:
            self.parts[name] = self.spell(value, where=name)
        return f"part {name}"

    def claim(self, label: str, *, key: Any) -> tuple[str, bool]:
        """The unique label of what `key` identifies, numbered where several have the same, and whether it is new."""
        if key in self._labels:
            return self._labels[key], False
        number, name = 1, label
        while name in self._taken:
            number += 1
            name = f"{label} ({number})"
        self._taken.add(name)
        self._labels[key] = name
        return name, True

    def keep(self, value: Any) -> Any:
        """`value`, kept alive, so that its id stays its own."""
        self._kept.append(value)
        return value

    def mark_unknown(self, description: str) -> str:
        """Record what cannot be fingerprinted; the text returned comes only once."""
        self._unknown[description] = None
        return f"unknown {self._nonce}"

    def unknown_value(self, value: Any, where: str) -> list[str]:
        """The same for a value, named by its place and type."""
        return [self.mark_unknown(f"{where} ({type_name(type(value))})")]

    def add(self, parts: dict[str, str], unknown: Sequence[str]) -> None:
        """Take over parts that were found elsewhere, such as whole files."""
        self.parts |= parts
        for one in unknown:
            self.mark_unknown(one)
            self.parts[one] = f"unknown {self._nonce}"
