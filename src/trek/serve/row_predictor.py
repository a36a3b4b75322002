"""RowPredictor: a model as a function over record batches of a Table, loaded once in each process that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trek.data.tensors import to_column
from trek.errors import InputError
from trek.fingerprints import fingerprint_value
from trek.serve.codecs.arrow_stream import to_rows
from trek.serve.handlers import open_handler
from trek.serve.handlers.base import Arrays, Handler
from trek.serve.model_source import ModelSource, model_files
from trek.serve.packed_model import PackedModel
from trek.serve.tensor_spec import TEXT

FileState = tuple[tuple[str, int, int], ...]


class RowPredictor:
    """The columns `keep` of a record batch and, after them, what the model returns for its rows."""

    def __init__(
        self,
        source: ModelSource,
        *,
        device: str,
        columns: Mapping[str, str],
        keep: Sequence[str],
        batch_size: int,
        prefix: str = "",
        packed: PackedModel | None = None,
    ) -> None:
        """`columns` says for each input of the model which column it is, and `prefix` begins the name of each output.

        `packed` is for machines without this disk.
        """
        self._source = source
        self._state = file_state(source)
        self._packed = packed
        self._device = device
        self._columns = dict(columns)
        self._keep = list(keep)
        self._batch_size = batch_size
        self._prefix = prefix

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The predictions for a batch."""
        handler = self._load()
        outputs = self._predict(handler, batch) if batch.num_rows else self._predict_none(handler, batch)
        self.check_outputs(outputs)
        columns = {name: batch.column(name) for name in self._keep}
        columns |= {f"{self._prefix}{name}": column for name, column in outputs.items()}
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    @property
    def reads(self) -> list[str]:
        """The columns that it takes and keeps."""
        return list(dict.fromkeys([*self._keep, *self._columns.values()]))

    def check_outputs(self, names: Iterable[str]) -> None:
        """InputError if an output has the name of a column that is kept."""
        taken = next((name for name in names if f"{self._prefix}{name}" in self._keep), None)
        if taken is not None:
            raise InputError(
                f"the model's output {taken!r} has the name of the column {self._prefix + taken!r}, which is kept. "
                "Give the outputs a prefix (--prefix, prefix=), or keep other columns (--keep, keep=)."
            )

    def _predict(self, handler: Handler, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        inputs = self._inputs(handler, batch)
        found = [
            handler.predict({name: array[at : at + self._batch_size] for name, array in inputs.items()})
            for at in range(0, batch.num_rows, self._batch_size)
        ]
        return {name: to_column(np.concatenate([one[name] for one in found]), name=name) for name in found[0]}

    def _predict_none(self, handler: Handler, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The outputs without a row, as the model describes them, or else as it returns them."""
        if handler.outputs is not None:
            return {spec.name: _empty_column(spec.name, spec.dtype, spec.shape) for spec in handler.outputs}
        try:
            found = handler.predict(self._inputs(handler, batch))
        except Exception as error:
            raise InputError(
                f"the data has no rows, and model {str(self._source)!r} returns nothing for none, so the columns of "
                f"its outputs are unknown: {type(error).__name__}: {error}. Pass data with rows."
            ) from error
        return {
            name: _empty_column(name, TEXT if array.dtype == object else array.dtype.name, array.shape[1:])
            for name, array in found.items()
        }

    def _inputs(self, handler: Handler, batch: pa.RecordBatch) -> Arrays:
        return handler.fit({name: to_rows(batch.column(column), name=column) for name, column in self._columns.items()})

    def __trek_fingerprint__(self) -> Any:
        """What the predictions depend on: the model as it is loaded, with its code, and every setting."""
        handler = self._load()
        # Code may read later what it holds a path of, and `persist` resumes by names alone.
        files = [file.digest for file in fingerprint_value(handler).files]
        source = (self._source.kind, self._source.address, self._source.trial)
        return (source, handler, files, self._device, self._columns, self._keep, self._batch_size, self._prefix)

    def _load(self) -> Handler:
        """The model, if its files are still those that the predictions began with."""
        if self._packed is not None:
            return load_once(self._packed.unpack(), self._device)
        handler = load_once(self._source, self._device)
        if file_state(self._source) != self._state:
            raise InputError(
                f"the files of model {str(self._source)!r} changed while it was used. Repeat the command: it starts "
                "again with the new model."
            )
        return handler


def make_predictor(
    source: ModelSource,
    known: Sequence[str],
    *,
    device: str,
    columns: Sequence[str],
    keep: Sequence[str] | None,
    **settings: Any,
) -> RowPredictor:
    """For data with the columns `known`: loads the model to see what it takes and, if it says so, returns."""
    handler = load_once(source, device)
    chosen = choose_columns(handler, columns, known)
    kept = [name for name in known if name not in chosen.values()] if keep is None else list(keep)
    made = RowPredictor(source, device=device, columns=chosen, keep=kept, **settings)
    made.check_outputs(spec.name for spec in handler.outputs or ())
    return made


def _empty_column(name: str, dtype: str, shape: Sequence[int]) -> pa.Array:
    if dtype == TEXT:
        return pa.array([], pa.string())
    return to_column(np.empty((1, *shape), dtype), name=name).slice(0, 0)


def load_once(source: ModelSource, device: str) -> Handler:
    """The handler of `source`, kept in this process for as long as its files stay the same."""
    return _load_state(source, device, file_state(source))


@lru_cache(maxsize=1)
def _load_state(source: ModelSource, device: str, state: FileState) -> Handler:
    return open_handler(source, device=device)


def file_state(source: ModelSource) -> FileState:
    """Names, sizes and times of the files of a model on this disk; its code is read once by a process."""
    place = Path(source.address)
    facts = [(str(path), path.stat()) for path in (model_files(place) if place.exists() else ())]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in facts)


def choose_columns(handler: Handler, given: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """The column of each input: `INPUT=COLUMN`, or columns in the order of the inputs; else those of equal names."""
    names = [spec.name for spec in handler.inputs] if handler.inputs is not None else None
    pairs = [one.partition("=") for one in given]
    if given and all(separator for _, separator, _ in pairs):
        chosen = {name: column for name, _, column in pairs}
        if len(chosen) < len(pairs):
            raise InputError(f"an input has several columns: {', '.join(given)}. Name one column for each input.")
    elif given:
        inputs = names if names is not None else list(given)
        if len(inputs) != len(given):
            raise InputError(f"the model takes {len(inputs)} inputs ({', '.join(inputs)}), got {len(given)} columns.")
        chosen = dict(zip(inputs, given, strict=True))
    else:
        chosen = {name: name for name in (names if names is not None else known)}
    missing = next((column for column in chosen.values() if column not in known), None)
    if missing is not None:
        raise InputError(
            f"column {missing!r} does not exist. There are: {', '.join(known)}. Name the column of each input of the "
            f"model: {', '.join(f'{name}=COLUMN' for name in chosen)}."
        )
    return chosen
