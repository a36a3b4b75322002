"""`trek.data.fetch_files`: the files of a named data set as they are, for code that reads them itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from trek.data.datasets import find_dataset
from trek.data.fetching.fetch import fetch, find_fault
from trek.system.disk import storage_errors


def fetch_files(
    name: str,
    *,
    split: str | None = None,
    folder: Path | str | None = None,
    show_progress: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, Path]:
    """Paths of the files of a data set by name, each verified now; copied to `folder` if one is given.

    A file that is there already is kept if it is the right one, and replaced otherwise.
    """
    dataset = find_dataset(name)
    cached = fetch(dataset, split=split, show_progress=show_progress, environ=environ)
    if folder is None:
        return cached
    target, facts = Path(folder), {file.name: file for file in dataset.files}
    with storage_errors(target, remedy="Choose a folder that can be written to."):
        target.mkdir(parents=True, exist_ok=True)
        for file, source in cached.items():
            if not (target / file).is_file() or find_fault(target / file, facts[file]) is not None:
                partial = target / f".{file}.{os.getpid()}"
                shutil.copyfile(source, partial)
                partial.replace(target / file)
    return {file: target / file for file in cached}
