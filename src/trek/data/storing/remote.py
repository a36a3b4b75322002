"""Persisted tables behind a URL: computed on this machine, uploaded shard by shard, the manifest last.

A table without a manifest does not exist, so a partial upload is never read. Object stores have no lock: of two writers
at one URL the last one's manifest counts, and shards have the fingerprint in their names, so that they are not mixed.
"""

from __future__ import annotations

import json
import posixpath
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trek.data.execution.base import Executor
from trek.data.plans.plan import PlanNode
from trek.data.sources.files import FileSource
from trek.data.sources.formats import format_of
from trek.data.sources.listing import file_info, file_system, is_there
from trek.data.storing.persist import persist, require_storage
from trek.data.storing.persisted import Manifest, Storage
from trek.data.storing.table_folder import MANIFEST, is_shard, require_replaceable
from trek.errors import DataUnavailable, StorageError


class RemoteSource(FileSource):
    """A table persisted at a URL, a partition for each shard."""

    def __init__(self, url: str, manifest: Manifest) -> None:
        self.url = url
        self.manifest = manifest
        super().__init__(
            [file_info(f"{url}/{shard.file}") for shard in manifest.shards], format=format_of(manifest.storage)
        )

    @classmethod
    def find(cls, url: str) -> RemoteSource | None:
        """The table persisted at `url`, if there is one; its shards' sizes are checked."""
        system, root = file_system(url)
        path = posixpath.join(root, MANIFEST)
        system.invalidate_cache()
        if not is_there(system, path, url=url):
            return None
        try:
            manifest = Manifest.parse(system.cat_file(path).decode())
        except (ValueError, TypeError, KeyError) as error:
            raise DataUnavailable(f"{url}/{MANIFEST} cannot be read: {error}.") from error
        try:
            found = cls(url.rstrip("/"), manifest)
        except FileNotFoundError as error:
            raise DataUnavailable(f"{url} does not match its manifest: a shard is missing: {error}.") from error
        for shard, file in zip(manifest.shards, found.files, strict=True):
            if file.size_bytes != shard.bytes:
                raise DataUnavailable(f"{url} does not match its manifest: {shard.file} has another size.")
        return found

    def identity(self) -> Any:
        """Names, sizes and checksums of the shards."""
        return [(f"{self.url}/{shard.file}", shard.bytes, shard.sha256) for shard in self.manifest.shards]

    @property
    def num_rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.manifest.shards)

    def describe(self) -> str:
        """One line for `explain`."""
        return f"read {self.url} ({self.manifest.storage})"


def persist_remotely(
    node: PlanNode, url: str, executor: Executor, *, storage: Storage, overwrite: bool
) -> RemoteSource:
    """Compute `node` to `url`, unless the result of an equal plan is there already."""
    require_storage(storage)
    found = None if overwrite else _found(url)
    if found is not None and found.manifest.is_of(node.take_fingerprint(), storage):
        return found
    _shards_to_replace(url)  # before hours of computing
    with tempfile.TemporaryDirectory(prefix="trek-persist-") as folder:
        made = persist(node, Path(folder) / "rows", executor, storage=storage)
        return RemoteSource(url.rstrip("/"), _upload(made.folder, made.manifest, url))


def _found(url: str) -> RemoteSource | None:
    try:
        return RemoteSource.find(url)
    except DataUnavailable:  # damaged: it is replaced
        return None


def _shards_to_replace(url: str) -> list[str]:
    """The paths of the shards at `url`; refused if there is anything that Trek did not write."""
    system, root = file_system(url)
    system.invalidate_cache()
    found = {posixpath.relpath(path, root): path for path in map(str, system.find(root))}
    is_whole = MANIFEST in found
    uploaded = {name for name in found if is_shard(name) and not name.startswith("shard-")}
    require_replaceable(url, found.keys() if is_whole else found.keys() - uploaded)  # an upload may have been killed
    return [path for name, path in found.items() if is_shard(name)]


def _upload(folder: Path, manifest: Manifest, url: str) -> Manifest:
    system, root = file_system(url)
    named = replace(
        manifest,
        shards=tuple(replace(shard, file=f"{manifest.fingerprint[:8]}-{shard.file}") for shard in manifest.shards),
    )
    try:
        system.makedirs(root, exist_ok=True)
        before = _shards_to_replace(url)
        for here, there in zip(manifest.shards, named.shards, strict=True):
            system.put_file(str(folder / here.file), posixpath.join(root, there.file))
        system.pipe_file(posixpath.join(root, MANIFEST), json.dumps(asdict(named), indent=1).encode())
        kept = {shard.file for shard in named.shards}
        for path in before:
            if posixpath.basename(path) not in kept:
                system.rm_file(path)
    except OSError as error:
        raise StorageError(
            f"cannot write to {url}: {error}. Check the URL and the credentials for its store."
        ) from error
    return named
