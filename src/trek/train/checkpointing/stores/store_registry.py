"""Stores by the scheme of their URL."""

from __future__ import annotations

from pathlib import Path

from trek.registry import Registry
from trek.system.urls import scheme_of
from trek.train.checkpointing.stores.base import Storage

STORES: Registry[type[Storage]] = Registry(
    "stores",
    {"file": "trek.train.checkpointing.stores.folder:FolderStorage"},
    word="checkpoint store",
    base="trek.train.checkpointing.stores.base:Storage",
)
"""A plug-in's name is the scheme of the URLs that it opens."""


def open_storage(place: Path | str | Storage) -> Storage:
    """The Storage for a folder or a URL: the one registered for its scheme, fsspec for every other scheme.

    A Storage is its own place: the caller has opened it.
    """
    if isinstance(place, Storage):
        return place
    scheme = scheme_of(str(place))
    if scheme in STORES:
        return STORES.load(scheme).open(str(place))
    from trek.train.checkpointing.stores.remote import RemoteStorage

    return RemoteStorage.open(str(place))
