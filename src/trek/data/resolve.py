"""`trek.data.open`: from a name, a path or a URL to a Table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trek.data.datasets import dataset_names, find_dataset
from trek.data.storing.sharing import Handle
from trek.data.table import Table
from trek.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def open(  # noqa: A001
    name_or_url: str | Path | Handle, *, split: str | None = None, types: Mapping[str, str | pa.DataType] | None = None
) -> Table:
    """A Table of a named data set (`split` is "train" unless given), a file, a folder, what `persist` or `share` made.

    A name that is a data set's is that data set; write `./mnist` for a folder of that name. Columns of CSV and JSON
    lines have the types that their first rows look like; `types={"x": "float64"}` says otherwise.
    """
    text = str(name_or_url)
    is_named = isinstance(name_or_url, str) and text.lower().replace("_", "-") in dataset_names()
    if split is not None and not is_named:
        raise InputError(f"split={split!r} is for named data sets ({', '.join(dataset_names())}), not for {text!r}.")
    if Handle.is_handle(name_or_url):
        _refuse_types(types, "shared tables")
        # The Handle itself, where there is one: its memory stays while the Table is used.
        return (name_or_url if isinstance(name_or_url, Handle) else Handle.parse(text)).open()
    if is_named:
        _refuse_types(types, "named data sets")
        return _open_named(text, split=split or "train")
    return _open_path(text, types)


def _refuse_types(types: Mapping[str, str | pa.DataType] | None, what: str) -> None:
    if types:
        raise InputError(f"types= is for text files; {what} know their types. Change them with map().")


def _open_named(name: str, *, split: str) -> Table:
    from trek.data.sources.named import NamedSource

    return Table(NamedSource.open(name, split=split))


def _open_path(text: str, types: Mapping[str, str | pa.DataType] | None) -> Table:
    from trek.data.sources.files import open_files
    from trek.data.storing.persist import MANIFEST, PersistedSource
    from trek.data.storing.remote import RemoteSource
    from trek.world.urls import is_remote

    if is_remote(text):
        persisted = RemoteSource.find(text)
        if persisted is not None:
            _refuse_types(types, "persisted tables")
        return Table(persisted or open_files(text, types=_parsed(types)))
    local = Path(text.removeprefix("file://")).expanduser()
    if (local / MANIFEST).is_file():
        _refuse_types(types, "persisted tables")
        return Table(PersistedSource.open(local))
    if "://" not in text and not local.exists() and local.parent == Path():
        find_dataset(text)  # no such path: its error offers the names that are near
    return Table(open_files(str(local), types=_parsed(types)))


def _parsed(types: Mapping[str, str | pa.DataType] | None) -> dict[str, pa.DataType]:
    import pyarrow as pa

    parsed = {}
    for name, kind in (types or {}).items():
        try:
            parsed[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        except ValueError as error:
            raise InputError(
                f"types: {kind!r} of column {name!r} is no type, as 'float64' and 'string' are."
            ) from error
    return parsed
