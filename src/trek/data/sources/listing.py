"""Which files an address means: one file, the files of a folder, those that match a pattern, or a list of these.

Folders called `name=value` on the way to a file (hive partitions) give all of its rows a column. Opens no file; see
`files` for reading.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa

from trek.data.sources.web import is_web, retried
from trek.distribution import install_command
from trek.errors import DataUnavailable, InputError
from trek.system.urls import is_remote

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_MAGIC = "*?["
_CHANGES = ("mtime", "ETag", "etag", "LastModified", "last_modified", "Last-Modified", "updated", "created")
"""Under which names file systems say when or whether a file was changed, the most exact ones first."""


@dataclass(frozen=True)
class FileInfo:
    """A file as it was found."""

    url: str
    size_bytes: int
    changed: str
    """What says that it changed, as the file system gives it: the time of the last change, or a store's ETag."""
    partition: tuple[tuple[str, str | None], ...] = ()
    """Names and values of the folders called `name=value` that it is in."""


def list_files(url: str) -> list[FileInfo]:
    """The files that `url` means, by name; those and folders that begin with `.` or `_` are left out of folders."""
    system, root = file_system(url)
    if not root:
        raise InputError(f"{url!r} names a store, but nothing in it. Add the bucket and the path.")
    if is_there(system, root, url=url):
        found = [root] if is_web(url) or system.isfile(root) else _inside(system, root)
        return [_info(system, path, root=root) for path in found]
    if not is_pattern(root):
        where = url if is_remote(url) else root  # of a local path, the absolute one
        raise InputError(f"the file or folder {where!r} does not exist. Check the path.")
    base = _base(root)
    matched = sorted(system.glob(root))
    files = [file for path in matched for file in ([path] if system.isfile(path) else _inside(system, path))]
    if not files:
        raise InputError(f"no file matches {url!r}. Check the pattern and the folder {base!r}.")
    return [_info(system, path, root=base) for path in dict.fromkeys(files) if _is_visible(path, base)]


def require_unchanged(file: FileInfo) -> None:
    """Refuse a file that is another than the one that was found, which readers ask when they are done with it."""
    system, path = file_system(file.url)
    system.invalidate_cache(path)
    try:
        found = retried(lambda: system.info(path), url=file.url)
    except FileNotFoundError as error:
        raise DataUnavailable(f"{file.url} no longer exists; it did when the Table was made.") from error
    size, changed = _size(found), _change(found)
    if (size, changed) != (file.size_bytes, file.changed):
        raise DataUnavailable(
            f"{file.url} has changed: it had {file.size_bytes:,} bytes when the Table was made, and now has {size:,}, "
            "written later. Open it again."
        )


def file_info(url: str) -> FileInfo:
    """The one file at `url`, as it is now."""
    system, path = file_system(url)
    return _info(system, path, root=posixpath.dirname(path))


def is_pattern(address: str) -> bool:
    """Whether an address names files by a pattern."""
    return any(sign in address for sign in _MAGIC)


def partition_schema(files: Sequence[FileInfo]) -> pa.Schema:
    """The columns that folders give: whole numbers where all values are, else texts."""
    values: dict[str, list[str | None]] = {}
    for file in files:
        for name, value in file.partition:
            values.setdefault(name, []).append(value)
    return pa.schema([(name, pa.int64() if _are_integers(found) else pa.string()) for name, found in values.items()])


def partition_value(file: FileInfo, field: pa.Field) -> Any:
    """The value that all rows of `file` have in a column of `partition_schema`."""
    value = dict(file.partition).get(field.name)
    return int(value) if value is not None and pa.types.is_integer(field.type) else value


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system that `url` is on, and the path there; an error that says what is missing for it."""
    scheme = url.partition("://")[0]
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = {"s3a": "s3", "gs": "gcs", "https": "http"}.get(scheme, scheme)
        known = f" ({install_command(extra)})" if extra in ("s3", "gcs", "http") else ""
        raise InputError(f"{url!r} needs a package that is not installed{known}: {error}.") from error
    except ValueError as error:
        known = ", ".join(sorted({"file", "memory", "http", "https", "s3", "gs", "az", "hf"}))
        raise InputError(f"{url!r}: {error}. Known schemes are {known} and others of fsspec.") from error
    return system, str(path)


def is_there(system: Any, path: str, *, url: str) -> bool:
    """Whether `path` of `url`'s file system exists: the first thing that is asked of it."""
    how = {"strict": True} if is_web(url) else {}
    try:
        return bool(retried(lambda: system.exists(path, **how), url=url))
    except DataUnavailable:
        raise
    except Exception as error:  # every store has errors of its own kind
        raise DataUnavailable(
            f"{url!r} cannot be opened: {str(error).rstrip('.')}. Check the URL and the credentials for its store."
        ) from error


def _inside(system: Any, root: str) -> list[str]:
    return [path for path in sorted(system.find(root)) if _is_visible(path, root)]


def _base(pattern: str) -> str:
    """The folder that a pattern begins with."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if is_pattern(part))
    return "/".join(parts[:first]) or "/"


def _is_visible(path: str, root: str) -> bool:
    relative = posixpath.relpath(path, root)
    return not any(part.startswith((".", "_")) for part in relative.split("/"))


def _info(system: Any, path: str, *, root: str) -> FileInfo:
    url = system.unstrip_protocol(path)
    found = retried(lambda: system.info(path), url=url)
    return FileInfo(url, _size(found), _change(found), _partition(path, root))


def _size(found: Mapping[str, Any]) -> int:
    return int(found["size"] or 0)


def _change(found: Mapping[str, Any]) -> str:
    return next((str(found[key]) for key in _CHANGES if found.get(key)), "")


def _partition(path: str, root: str) -> tuple[tuple[str, str | None], ...]:
    folders = posixpath.relpath(path, root).split("/")[:-1]
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return tuple((unquote(name), None if value == _MISSING else unquote(value)) for name, _, value in pairs)


def _are_integers(values: Sequence[str | None]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(_is_integer(value) for value in known)


def _is_integer(value: str) -> bool:
    """Whether a whole number is written as it would be printed: 007 is a text."""
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(value)) == value and -(2**63) <= int(value) < 2**63
