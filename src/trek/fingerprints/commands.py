"""Commands by content: the words of a command line, and the files, folders, scripts and modules that they name."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trek.errors import OutsideError
from trek.fingerprints.contents import digest_path
from trek.fingerprints.fingerprint import Fingerprint
from trek.fingerprints.reader import Reader
from trek.fingerprints.sources import Imported, SourceReader

_INTERPRETER = re.compile(r"python[\d.]*")
_SEPARATORS = re.compile(r"[=,:;]")
_SHEBANG_BYTES = 200
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/usr", "/opt", "/lib")


def fingerprint_command(
    argv: Sequence[Any],
    *,
    folder: Path,
    variables: Sequence[str] = (),
    search_path: Sequence[Path] = (),
    left_out: Sequence[Path] = (),
) -> Fingerprint:
    """What a command run in `folder` depends on; modules are searched there, in `search_path`, and as Python does.

    Values of `variables` may name files too. Folders of `left_out` do not count as contents of others: what is kept
    there changes with every run.
    """
    reader = _CommandReader(folder, search_path, left_out)
    for index, word in enumerate(argv):
        reader.read_word(word, index=index, before=argv[index - 1] if index else None)
    for value in variables:
        reader.read_variable(value)
    return Fingerprint(reader.parts, tuple(reader.unknown))


class _CommandReader:
    """Collects the parts of one command."""

    def __init__(self, folder: Path, search_path: Sequence[Path], left_out: Sequence[Path]) -> None:
        self.parts: dict[str, str] = {}
        self.unknown: list[str] = []
        self._folder = folder
        self._search_path = [folder, *search_path]
        self._seen: set[Path] = set()
        self._left_out = left_out

    def read_word(self, word: Any, *, index: int, before: Any) -> None:
        """Add one word, and what it names."""
        text = str(word) if isinstance(word, str | Path) else None
        if text is not None and (python := identify_interpreter(text, self._folder)) is not None:
            self.parts[f"word {index}"] = python
            return
        reader = Reader()
        reader.read(text if text is not None else word, label=f"word {index}")
        self._add(dict(reader.parts), reader.unknown)
        if text is None:
            return
        if before in ("-m", "--module"):
            self._read_module(text)
        elif before == "-c":
            self._read_program(text)
        for path in self._paths_in(text, is_program=index == 0):
            self._read_path(path)

    def read_variable(self, value: str) -> None:
        """Add the files that the value of a variable names; its folders are rather where programs are searched."""
        for path in self._paths_in(value, is_program=False):
            if path.is_file():
                self._read_path(path)

    def _paths_in(self, text: str, *, is_program: bool) -> Iterator[Path]:
        """What exists of the word itself, of the words inside it, and of what follows a sign such as `=`."""
        found = _find_program(text) if is_program and "/" not in text else None
        if found is not None:
            yield found
        whole = [] if is_program and "/" not in text else [text]
        words = _split(text) if any(char.isspace() for char in text) else []
        pieces = [piece for word in [text, *words] for piece in _SEPARATORS.split(word)[1:]]
        for name in [*whole, *words, *pieces]:
            path = self._folder / name
            if (name.strip("./") and _exists(path)) or (name in (".", "..", "./", "../") and name in whole):
                yield path

    def _read_path(self, path: Path) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        if path.is_file() and (path.suffix == ".py" or "python" in _shebang(path)):
            self._read_script(path)
            return
        try:
            name = f"file {path.name}" if path.is_file() else f"folder {path}"
            self.parts[name] = digest_path(path, left_out=self._left_out)
        except OutsideError as error:
            self._add({}, [str(error).rstrip(".")])
        if path.is_file() and (path.suffix in (".sh", ".bash") or _shebang(path)):
            self._read_named_files(path)

    def _read_named_files(self, script: Path) -> None:
        """The files that a shell script names."""
        for word in _split(script.read_text(errors="replace")):
            for name in [word, *_SEPARATORS.split(word)[1:]]:
                path = self._folder / name
                if name.strip("./") and not name.startswith("/") and path.is_file():
                    self._read_path(path)

    def _read_script(self, path: Path) -> None:
        found = SourceReader([path.parent, *self._search_path])
        found.read_file(path, label=path.name)
        self._add({f"code of {name}": digest for name, digest in found.parts.items()}, found.unknown)

    def _read_module(self, name: str) -> None:
        found = SourceReader(self._search_path)
        found.read_import(Imported(name, ("__main__",)))
        self._add({f"code of {name}": digest for name, digest in found.parts.items()}, found.unknown)

    def _read_program(self, text: str) -> None:
        found = SourceReader(self._search_path)
        found.read_text(text, label="-c")
        self._add({f"code of {name}": digest for name, digest in found.parts.items()}, found.unknown)

    def _add(self, parts: dict[str, str], unknown: Sequence[str]) -> None:
        self.parts |= parts
        self.unknown += unknown


def identify_interpreter(word: str, folder: Path) -> str | None:
    """Which Python the word starts, however it is spelled; None if it starts none."""
    if not _INTERPRETER.fullmatch(Path(word).name):
        return None
    found = shutil.which(word) if "/" not in word else str(folder / word)
    if found is None or not Path(found).is_file():
        return None
    prefix = _prefix_of(Path(found))
    if prefix.exists() and prefix.samefile(sys.prefix):
        return f"python {sys.version}"
    config = prefix / "pyvenv.cfg"
    return f"python in {prefix}: {config.read_text() if config.is_file() else Path(found).resolve()}"


def _prefix_of(python: Path) -> Path:
    """The environment to which an interpreter belongs: a virtual one has its configuration beside the folder of it."""
    near = python.parent.parent
    return near if (near / "pyvenv.cfg").is_file() else python.resolve().parent.parent


def _find_program(name: str) -> Path | None:
    """A program of the user's own on the search path; those of the system and of this environment count by name."""
    found = shutil.which(name)
    if found is None:
        return None
    folders = (*_SYSTEM_FOLDERS, sys.prefix, sys.base_prefix)
    paths = (Path(found), Path(found).resolve())
    is_installed = any(path.is_relative_to(folder) for path in paths for folder in folders)
    return None if is_installed else Path(found)


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):  # too long for a name, or with characters that none can have
        return False


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quotation mark without its partner
        return text.split()


def _shebang(path: Path) -> str:
    try:
        with path.open("rb") as file:
            first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    return first.decode(errors="replace") if first.startswith(b"#!") else ""
