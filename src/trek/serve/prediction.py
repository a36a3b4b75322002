"""`trek.serve.predict`: a model over all rows of a Table, into one Parquet file.

Rows are cut into chunks, each written once (`Table.persist`), so a run that was killed continues with the chunks that
are missing; the file gets its name when it is complete, with every row in it once, in order.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import trek.data
from trek.data.execution import running_on
from trek.data.progress import progress_bar
from trek.data.storing.persist import count_finished
from trek.data.table import Table
from trek.errors import InputError
from trek.serve.model_source import ModelSource
from trek.serve.packed_model import PackedModel
from trek.serve.row_predictor import make_predictor
from trek.serve.settings import check_engine_options
from trek.system.disk import storage_errors

CHUNK_ROWS = 8192
_LOOK_S = 0.5
_RAY_OPTIONS = {"address": "address", "cpus": "cpus_per_task", "gpus": "gpus_per_task"}
"""Engine options, and what an executor calls them."""


def predict(
    model: Any,
    data: Any,
    output: Path | str,
    *,
    split: str | None = None,
    columns: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    prefix: str = "",
    workers: int | None = None,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    batch_size: int = 256,
    chunk_rows: int = CHUNK_ROWS,
    device: str = "cpu",
    code: Path | str | None = None,
    trial: str = "",
    overwrite: bool = False,
    show_progress: bool = True,
) -> Path:
    """Write the model's outputs for every row of `data` to the Parquet file `output`, and return its path.

    `data` is a Table or what `trek.data.open` takes. `columns` are the columns of the model's inputs, in order, or
    `input=column`; without them, columns of the inputs' names. `keep` are the columns to keep beside the outputs, by
    default all that are not inputs; `prefix` begins the names of the outputs. A run that is repeated after it was
    killed does the chunks that are missing; if the content of the model, its code, the data or a setting has changed,
    it starts again.
    `workers` are processes of this machine, by default one; with the engine `ray` tasks of a cluster, by default as
    many as it has CPUs, and `engine_options` are its address and the `cpus` and `gpus` of each task.
    """
    target = Path(output)
    if target.exists() and not overwrite:
        raise InputError(f"{str(target)!r} exists already. Choose another file, or pass overwrite (--overwrite).")
    running = _executor(engine, workers, engine_options or {})
    table = data if isinstance(data, Table) else trek.data.open(data, split=split)
    source = ModelSource.parse(model, code=code, trial=trial)
    num_rows = table.num_rows
    num_chunks = max(1, -(-num_rows // chunk_rows))
    parts = target.with_name(f".{target.name}.parts")
    packed = PackedModel.of(source) if engine != "local" else None
    predictor = make_predictor(
        source,
        table.columns,
        columns=columns,
        keep=keep,
        prefix=prefix,
        batch_size=batch_size,
        device=device,
        packed=packed,
    )
    predicted = table.select(*predictor.reads).partition(num_chunks).map(predictor, arrow=True)
    with running, _progress(parts, num_rows, num_chunks, is_shown=show_progress):
        _write(predicted, parts, target)
    return target


def predictions(
    model: Any,
    data: Table,
    *,
    columns: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    prefix: str = "",
    batch_size: int = 256,
    device: str = "cpu",
    code: Path | str | None = None,
    trial: str = "",
) -> Table:
    """A Table with the model's outputs for every row of `data`, computed while it is read.

    `data` may be a stream (`Table.stream`), whose predictions come as its batches do. Arguments are those of `predict`.
    """
    source = ModelSource.parse(model, code=code, trial=trial)
    predictor = make_predictor(
        source, data.columns, columns=columns, keep=keep, prefix=prefix, batch_size=batch_size, device=device
    )
    return data.map(predictor, arrow=True)


def _executor(engine: str, workers: int | None, options: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Where the chunks are computed, for a `with` block."""
    if engine == "local":
        if options:
            raise InputError(f"engine 'local' has no options, got {dict(options)}. Use engine 'ray'.")
        return running_on("processes" if (workers or 1) > 1 else "threads", num_workers=workers or 1)
    if engine != "ray":
        raise InputError(f"engine {engine!r} does not exist. Use one of: local, ray.")
    check_engine_options(options, known=_RAY_OPTIONS)
    return running_on("ray", num_workers=workers, **{_RAY_OPTIONS[name]: value for name, value in options.items()})


def _write(predicted: Table, parts: Path, target: Path) -> None:
    """Compute the chunks that are missing in `parts`, put all together in `target`, and remove them."""
    _merge(predicted.persist(parts, storage="arrow", resume=True), target)
    shutil.rmtree(parts)
    parts.with_name(f".{parts.name}.lock").unlink(missing_ok=True)


def _merge(table: Table, target: Path) -> None:
    half = target.with_name(f".{target.name}.half")
    with storage_errors(target.parent, remedy="Free some space, or write elsewhere."), half.open("wb") as file:
        with pq.ParquetWriter(file, table.schema) as writer:
            for group in _groups(table):
                writer.write_table(group)
        file.flush()
        os.fsync(file.fileno())
    half.rename(target)


def _groups(table: Table) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in table:
        held.append(batch)
        if sum(one.num_rows for one in held) >= 8 * CHUNK_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


@contextmanager
def _progress(parts: Path, num_rows: int, num_chunks: int, *, is_shown: bool) -> Iterator[None]:
    """Shows the rows of finished chunks, which other processes may have written."""
    ended = threading.Event()
    with progress_bar(num_rows, title="predict", unit="row", is_shown=is_shown) as bar:
        thread = threading.Thread(target=_follow, args=(bar.update, parts, num_rows / num_chunks, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _follow(advance: Callable[[float], Any], parts: Path, chunk_rows: float, ended: threading.Event) -> None:
    shown = 0
    while not ended.wait(_LOOK_S):
        finished = count_finished(parts)
        advance((finished - shown) * chunk_rows)
        shown = finished
