"""A watched folder: files appear in it, and their predictions appear in another one, each once.

Predictions are named after the file they are for, and get that name when they are complete: what has it is done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trek.errors import InputError, TrekError
from trek.serve.prediction import predict

logger = logging.getLogger(__name__)


def watch(
    model: Any,
    folder: Path | str,
    output: Path | str,
    *,
    poll_s: float = 1.0,
    stop: threading.Event | None = None,
    on_done: Callable[[Path], None] = lambda path: None,
    **settings: Any,
) -> None:
    """Predict every file of `folder` into the folder `output`, and go on with files that appear, until `stop` is set.

    A file is read when it has not changed for `poll_s`; hidden ones are left alone. One that cannot be read is told
    about once, and tried again when it has changed. `settings` are those of `predict`.
    """
    source, target, ended = Path(folder), Path(output), stop or threading.Event()
    if not source.is_dir():
        raise InputError(f"{str(source)!r} is not a folder, so it cannot be watched.")
    target.mkdir(parents=True, exist_ok=True)
    seen: dict[Path, tuple[int, int]] = {}
    refused: dict[Path, tuple[int, int]] = {}
    while True:
        for path, state in _files(source):
            is_steady, seen[path] = seen.get(path) == state, state
            done = target / f"{path.name}.parquet"
            if not is_steady or done.exists() or refused.get(path) == state:
                continue
            try:
                predict(model, path, done, **settings)
            except TrekError as error:
                refused[path] = state
                logger.error("%s is left out: %s", path.name, error)
            else:
                on_done(done)
        if ended.wait(poll_s):
            return


def _files(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            facts = path.stat()
            yield path, (facts.st_size, facts.st_mtime_ns)
