"""Dataset: what a named data set consists of, declared once, with the parser that turns its files into an Arrow table.

Fetches nothing; see `trek.data.fetching.fetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trek.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RemoteFile:
    """One file as it is in the cache, and how it is verified.

    A mirror may hold it gzip-compressed under `<name>.gz`; checksums are those of the file itself, unpacked.
    """

    name: str
    size_bytes: int
    sha256: str | None = None
    md5: str | None = None
    urls: Sequence[str] = ()

    def __post_init__(self) -> None:
        assert self.sha256 or self.md5, f"{self.name} is declared without a checksum"


@dataclass(frozen=True)
class Dataset:
    """A data set with a name. `parse` turns the paths of a split's files, by name, into one Arrow table."""

    name: str
    title: str
    licence: str
    homepage: str
    splits: Mapping[str, Sequence[RemoteFile]]
    """Files by split; a split without files comes with an installed package."""
    parse: Callable[[Mapping[str, Path], str], pa.Table] = field(repr=False)
    num_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def files(self) -> list[RemoteFile]:
        """Every file of every split, each once."""
        return list({file.name: file for files in self.splits.values() for file in files}.values())

    @property
    def size_bytes(self) -> int:
        """Bytes in the cache once every file is there."""
        return sum(file.size_bytes for file in self.files)

    def require_split(self, split: str) -> str:
        """`split`, if the data set has it."""
        if split not in self.splits:
            raise InputError(f"data set {self.name!r} has no split {split!r}. Use one of: {', '.join(self.splits)}.")
        return split
