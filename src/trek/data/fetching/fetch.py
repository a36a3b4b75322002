"""Fetches the files of a data set into the cache: verified by checksum, atomic, resumable, the nearest origin first.

Order: the cache under `$TREK_HOME/data/<name>`, `TREK_DATA_MIRROR` (a folder or URL laid out as `<name>/<file>`), then
the public mirrors. A file gets its final name only after its checksum was verified.
Several processes may fetch the same data set at once: one does, the others wait and find it done.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from trek.data.datasets import Dataset, RemoteFile
from trek.data.fetching.download import download
from trek.data.progress import ProgressBar, progress_bar
from trek.errors import DataUnavailable, StorageError
from trek.system.disk import storage_errors
from trek.system.home import claim_home, trek_home


def fetch(
    dataset: Dataset, *, split: str | None = None, show_progress: bool = True, environ: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Paths of the files of `split` (all splits when None), by name, each verified now."""
    files = dataset.files if split is None else dataset.splits[dataset.require_split(split)]
    folder = claim_home(trek_home(environ)) / "data" / dataset.name
    mirror = environ.get("TREK_DATA_MIRROR")
    with storage_errors(folder, remedy="Set TREK_HOME to a folder with enough space."):
        return {file.name: _fetch_file(dataset.name, file, folder, mirror, show_progress) for file in files}


def is_fetched(dataset: Dataset, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether every file is in the cache with the right size; checksums are verified when it is used."""
    folder = trek_home(environ) / "data" / dataset.name
    return all((folder / f.name).is_file() and (folder / f.name).stat().st_size == f.size_bytes for f in dataset.files)


def find_fault(path: Path, file: RemoteFile) -> str | None:
    """Why `path` is not the declared file; None if it is."""
    size = path.stat().st_size
    if size != file.size_bytes:
        return f"it has {size:,} bytes instead of {file.size_bytes:,}"
    algorithm, expected = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
    with path.open("rb") as content:
        found = hashlib.file_digest(content, algorithm).hexdigest()
    return None if found == expected else f"its {algorithm} is {found} instead of {expected}"


@dataclass(frozen=True)
class _Origin:
    """Where a file can be fetched from: a URL or a path."""

    address: str

    @property
    def is_url(self) -> bool:
        return self.address.startswith(("http://", "https://"))

    @property
    def is_packed(self) -> bool:
        return self.address.endswith(".gz")


def _fetch_file(dataset: str, file: RemoteFile, folder: Path, mirror: str | None, show_progress: bool) -> Path:
    target, lock = folder / file.name, folder / f".{file.name}.lock"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (target, lock, _part_of(target), _part_of(target, is_packed=True)):
        if path.is_dir():
            raise StorageError(f"{path} is a folder where a file of data set {dataset!r} must be. Remove it.")
    with FileLock(lock):
        if target.exists() and find_fault(target, file) is None:
            return target
        target.unlink(missing_ok=True)
        failures = []
        for origin in _origins(dataset, file, mirror):
            try:
                _fetch_from(origin, target, file, show_progress)
                return target
            except DataUnavailable as error:
                failures.append(str(error))
    raise DataUnavailable(_explain(dataset, file, failures))


def _origins(dataset: str, file: RemoteFile, mirror: str | None) -> Iterator[_Origin]:
    if mirror:
        base = f"{mirror.rstrip('/')}/{dataset}/{file.name}".removeprefix("file://")
        yield _Origin(base)
        if not file.name.endswith(".gz"):
            yield _Origin(f"{base}.gz")
    yield from (_Origin(url) for url in file.urls)


def _fetch_from(origin: _Origin, target: Path, file: RemoteFile, show_progress: bool) -> None:
    unpacks = origin.is_packed and not file.name.endswith(".gz")
    part = _part_of(target, is_packed=unpacks)
    found_part = part.exists()
    with progress_bar(file.size_bytes, title=file.name, unit="B", is_shown=show_progress) as bar:
        _transfer(origin, part, bar, size_bytes=None if unpacks else file.size_bytes)
    if unpacks:
        part = _gunzip(part, _part_of(target), origin)
    fault = find_fault(part, file)
    if fault is None:
        part.replace(target)
        return None
    part.unlink()
    if found_part:  # its beginning came from another origin: start over
        return _fetch_from(origin, target, file, show_progress)
    raise DataUnavailable(f"{origin.address} is not the expected {file.name}: {fault}")


def _part_of(target: Path, *, is_packed: bool = False) -> Path:
    """Where a file is put together before it gets its name."""
    return target.with_name(target.name + (".gz.part" if is_packed else ".part"))


def _transfer(origin: _Origin, part: Path, bar: ProgressBar, *, size_bytes: int | None) -> None:
    if origin.is_url:
        bar.update(part.stat().st_size if part.exists() else 0)
        download(origin.address, part, size_bytes=size_bytes, on_bytes=bar.update)
        return
    source = Path(origin.address).expanduser()
    if not source.is_file():
        raise DataUnavailable(f"{source}: no such file")
    shutil.copyfile(source, part)


def _gunzip(packed: Path, part: Path, origin: _Origin) -> Path:
    try:
        with gzip.open(packed) as content, part.open("wb") as file:
            shutil.copyfileobj(content, file)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataUnavailable(f"{origin.address} is a broken gzip file: {error}") from error
    finally:
        packed.unlink()
    return part


def _explain(dataset: str, file: RemoteFile, failures: list[str]) -> str:
    tried = "; ".join(failures) if failures else "it has no public URL"
    return (
        f"cannot get {file.name} of data set {dataset!r}: {tried}. "
        f"Set TREK_DATA_MIRROR to a folder or URL that holds {dataset}/{file.name}."
    )
