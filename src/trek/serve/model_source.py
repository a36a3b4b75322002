"""ModelSource: which model to load, as plain values that travel to worker processes. Loads nothing itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trek.errors import InputError
from trek.system.urls import is_remote
from trek.train.checkpointing.stores import MANIFEST

_SUFFIXES = (".json", ".safetensors", ".txt", ".model")


@dataclass(frozen=True)
class ModelSource:
    """A checkpoint (folder or URL), an archive (`model.mar`), a folder of transformers, or `module:function`.

    `code` is the folder from which the code of the model is imported, by default the current one. `trial` is the
    `module:Class` of a checkpoint's Trial, by default the one that the checkpoint names.
    """

    kind: str
    address: str
    code: str = ""
    trial: str = ""

    @classmethod
    def parse(cls, place: Any, *, code: Path | str | None = None, trial: str = "") -> ModelSource:
        """From a ModelSource, a path, a URL, `module:function`, or a checkpoint with a `path`."""
        if isinstance(place, ModelSource):
            return place
        folder = str(Path(code or Path.cwd()).resolve())
        if hasattr(place, "manifest") and hasattr(place, "path"):
            return cls("checkpoint", str(place.path), folder, trial)
        text = os.fspath(place)
        kind = find_kind(text)
        if kind != "function" and not is_remote(text):
            text = str(Path(text).resolve())
        return cls(kind, text, folder, trial)

    @classmethod
    def from_plain(cls, values: Mapping[str, str]) -> ModelSource:
        """Undo `to_plain`."""
        return cls(**values)

    def to_plain(self) -> dict[str, str]:
        """As JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        return self.address


def find_kind(text: str) -> str:
    """Which handler an address is for, by its form; InputError if it has none."""
    path = Path(text)
    if text.endswith(".mar"):
        kind = "archive"
    elif is_remote(text) or (path / MANIFEST).is_file():
        kind = "checkpoint"
    elif (path / "config.json").is_file():
        kind = "pretrained"
    elif ":" in text and "/" not in text and all(part.isidentifier() for part in text.replace(":", ".").split(".")):
        return "function"
    else:
        what = f"{text!r} is not a model" if path.exists() else f"the model {str(path.absolute())!r} does not exist"
        raise InputError(
            f"{what}: expected the folder or URL of a checkpoint, an archive such as model.mar, a "
            "folder that save_pretrained wrote, or module:function."
        )
    if kind == "archive" and not path.is_file():
        raise InputError(f"the archive {str(path.absolute())!r} does not exist. Check the path.")
    return kind


def model_files(place: Path) -> list[Path]:
    """The files of a model on this disk: an archive itself; of a folder, those that Trek and transformers read.

    Not what else may be there, such as weights in other formats, which may be pickles, or files that a command writes.
    """
    return sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES) if place.is_dir() else [place]
