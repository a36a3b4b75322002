"""`trek.data.open`: from a name, paths or a URL to a Table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.data.datasets import dataset_names, find_dataset, is_dataset
from trek.data.execution import EXECUTORS
from trek.data.storing.sharing import Handle
from trek.data.table import Table
from trek.errors import InputError
from trek.system.urls import is_remote, local_path, scheme_of

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset

    from trek.data.sources.formats import TextOptions

_NAME = re.compile(r"[A-Za-z0-9_-]+")
"""Text that can be the name of a data set; a dot or a slash makes it a path."""


def open(  # noqa: A001
    name_or_url: str | Path | Handle | Sequence[str | Path],
    *,
    split: str | None = None,
    types: Mapping[str, str | pa.DataType] | None = None,
    header: bool | Sequence[str] = True,
    delimiter: str | None = None,
    quote: str | bool = True,
    encoding: str = "utf-8",
) -> Table:
    """A Table of a named data set (`split` is "train" unless given), of files, or of what `persist` or `share` made.

    Files are one file, a folder, a pattern (`data/*.parquet`) or a list of these, compressed or not; folders called
    `name=value` give their rows a column. A name that is a data set's is that data set; write `./mnist` for a folder of
    that name. Columns of CSV and JSON lines have the types that their first rows look like; `types={"x": "float64"}`
    says otherwise. CSV files: `header=False` where no line names the columns (`header=["a", "b"]` names them),
    `delimiter=";"`, `quote="'"` (False for none), `encoding="latin-1"`.
    """
    options = {"types": types, "header": header, "delimiter": delimiter, "quote": quote, "encoding": encoding}
    if isinstance(name_or_url, Sequence) and not isinstance(name_or_url, str):
        return _open_list(name_or_url, split=split, options=options)
    text = str(name_or_url)
    _require_address(text)
    is_named = isinstance(name_or_url, str) and is_dataset(text)
    if split is not None and not is_named:
        raise InputError(f"split={split!r} is for named data sets ({', '.join(dataset_names())}), not for {text!r}.")
    if Handle.is_handle(name_or_url):
        _refuse_options(options, "shared tables")
        # The Handle itself, where there is one: its memory stays while the Table is used.
        return (name_or_url if isinstance(name_or_url, Handle) else Handle.parse(text)).open()
    if is_named:
        _refuse_options(options, "named data sets")
        return _open_named(text, split=split or "train")
    if isinstance(name_or_url, str) and _NAME.fullmatch(text) and not Path(text).exists():
        find_dataset(text)  # its error offers the names that are near
    return _open_path(text, options)


def from_ray_data(dataset: Dataset) -> Table:
    """The rows of a dataset of Ray Data, which is computed now on its cluster; a partition for each block."""
    EXECUTORS.load("ray")  # says what is missing where Ray is not installed
    from trek.data.storing.ray_data import open_ray_data

    return Table(open_ray_data(dataset))


def _refuse_options(options: Mapping[str, Any], what: str) -> None:
    given = _text_options(options).given()
    if given:
        raise InputError(f"{next(iter(given))}= is for text files; {what} know their types. Change them with cast().")


def _open_list(addresses: Sequence[str | Path], *, split: str | None, options: Mapping[str, Any]) -> Table:
    from trek.data.sources.files import open_files

    if split is not None:
        raise InputError(f"split={split!r} is for named data sets, not for a list of files.")
    texts = [str(address) for address in addresses]
    for text in texts:
        _require_address(text)
    paths = [text if is_remote(text) else str(local_path(text).expanduser()) for text in texts]
    return Table(open_files(paths, options=_text_options(options)))


def _require_address(text: str) -> None:
    """An empty text, such as that of a variable that is not set, would be the present folder."""
    if not text.strip():
        raise InputError("the address of the data is empty. Pass the name of a data set, a path or a URL.")


def _open_named(name: str, *, split: str) -> Table:
    from trek.data.sources.named import NamedSource

    return Table(NamedSource.open(name, split=split))


def _open_path(text: str, options: Mapping[str, Any]) -> Table:
    from trek.data.sources.files import open_files
    from trek.data.sources.url_source import SOURCES
    from trek.data.storing.persisted import PersistedSource
    from trek.data.storing.remote import RemoteSource
    from trek.data.storing.table_folder import MANIFEST

    if is_remote(text) and scheme_of(text) in SOURCES:
        _refuse_options(options, "sources with a scheme of their own")
        return Table(SOURCES.load(scheme_of(text)).open(text))
    if is_remote(text):
        persisted = RemoteSource.find(text)
        if persisted is not None:
            _refuse_options(options, "persisted tables")
        return Table(persisted or open_files(text, options=_text_options(options)))
    local = local_path(text).expanduser()
    if (local / MANIFEST).is_file():
        _refuse_options(options, "persisted tables")
        return Table(PersistedSource.open(local))
    return Table(open_files(str(local), options=_text_options(options)))


def _text_options(options: Mapping[str, Any]) -> TextOptions:
    from trek.data.plans.expressions import parse_type
    from trek.data.sources.formats import TextOptions

    types = {}
    for name, kind in (options["types"] or {}).items():
        try:
            types[name] = parse_type(kind)
        except InputError as error:
            raise InputError(f"types: column {name!r}: {error}") from error
    return TextOptions(**{**options, "types": types})
