"""Fingerprint: named parts of what a result depends on, and what of it cannot be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trek.fingerprints.contents import digest_text
from trek.fingerprints.reader import NamedFile, Reader


@dataclass(frozen=True)
class Fingerprint:
    """Digests by the name of the part. With `unknown` parts it equals no other, not even the next of the same value."""

    parts: Mapping[str, str]
    unknown: tuple[str, ...] = ()
    """What cannot be fingerprinted, each with its place and type."""
    files: tuple[NamedFile, ...] = ()
    """Files and folders that are reached as paths; in `parts` they count by name alone."""

    @property
    def digest(self) -> str:
        """One digest of all parts and of the contents of the files."""
        return digest_text(repr([sorted(self.parts.items()), [file.digest for file in self.files]]))

    @property
    def outline(self) -> str:
        """A digest without the contents of the files, for those who compare these on their own."""
        return digest_text(repr(sorted(self.parts.items())))


def fingerprint(value: Any) -> str:
    """A digest of `value`: plain data, containers, arrays, frames, models, functions, objects by class and state."""
    return fingerprint_value(value).digest


def fingerprint_value(value: Any, *, name: str = "value") -> Fingerprint:
    """The same with the code it reaches as parts of their own; `name` is what messages call the value."""
    reader = Reader()
    reader.read(value, label=name)
    return Fingerprint(reader.parts, reader.unknown, reader.files)


def fingerprint_code(function: Any) -> Fingerprint:
    """Everything of the project that `function` is made of: itself, and the code and values it reaches."""
    return fingerprint_value(function, name="function")
