"""`trek.data.open`: from a name, a path or a URL to a Table."""

from __future__ import annotations

from pathlib import Path

from trek.data.datasets import dataset_names, find_dataset
from trek.data.sharing import Handle
from trek.data.table import Table
from trek.errors import InputError


def open(name_or_url: str | Path | Handle, *, split: str | None = None) -> Table:  # noqa: A001
    """A Table of a named data set (`split` is "train" unless given), a file, a folder, what `persist` or `share` made.

    A name that is a data set's is that data set; write `./mnist` for a folder of that name.
    """
    text = str(name_or_url)
    if Handle.is_handle(name_or_url):
        return Handle.parse(text).open()
    if isinstance(name_or_url, str) and text.lower().replace("_", "-") in dataset_names():
        return _open_named(text, split=split or "train")
    if split is not None:
        raise InputError(f"split={split!r} is for named data sets ({', '.join(dataset_names())}), not for {text!r}.")
    return _open_path(text)


def _open_named(name: str, *, split: str) -> Table:
    from trek.data.sources.named import NamedSource

    return Table(NamedSource.open(name, split=split))


def _open_path(text: str) -> Table:
    from trek.data.persist import MANIFEST, PersistedSource
    from trek.data.sources.files import open_files

    local = Path(text.removeprefix("file://")).expanduser()
    if (local / MANIFEST).is_file():
        return Table(PersistedSource.open(local))
    if "://" not in text and not local.exists() and local.parent == Path():
        find_dataset(text)  # no such path: its error offers the names that are near
    return Table(open_files(text if "://" in text else str(local)))
