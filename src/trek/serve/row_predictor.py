"""RowPredictor: a model as a function over record batches of a Table, loaded once in each process that runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trek.data.tensors import to_column
from trek.errors import InputError
from trek.serve.codecs.arrow_stream import to_rows
from trek.serve.handlers import open_handler
from trek.serve.handlers.base import Handler
from trek.serve.model_source import ModelSource
from trek.serve.packed_model import PackedModel
from trek.train.checkpointing.manifest import read_manifest
from trek.world.urls import is_remote


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
        packed: PackedModel | None = None,
    ) -> None:
        """`columns` says for each input of the model which column it is; `packed` is for machines without this disk."""
        self._source = source
        self._packed = packed
        self._device = device
        self._columns = dict(columns)
        self._keep = list(keep)
        self._batch_size = batch_size

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The predictions for a batch."""
        source = self._source if self._packed is None else self._packed.unpack()
        handler = load_once(source, self._device)
        inputs = handler.fit({name: to_rows(batch.column(column)) for name, column in self._columns.items()})
        found = [
            handler.predict({name: array[at : at + self._batch_size] for name, array in inputs.items()})
            for at in range(0, batch.num_rows, self._batch_size)
        ]
        columns = {name: batch.column(name) for name in self._keep}
        for name in found[0] if found else ():
            columns[name] = to_column(np.concatenate([one[name] for one in found]), name=name)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def __trek_fingerprint__(self) -> Any:
        """What the predictions depend on: the model's content, its code, and the columns."""
        return (identity(self._source), self._columns, self._keep, self._batch_size)


@lru_cache(maxsize=1)
def load_once(source: ModelSource, device: str) -> Handler:
    """The handler of `source`, kept in this process."""
    return open_handler(source, device=device)


def identity(source: ModelSource) -> dict[str, str]:
    """Changes with the content of the model and of the Python files beside its code."""
    digest = hashlib.sha256()
    if source.kind == "checkpoint":
        # The URL stands for the content: checkpoints are written once.
        is_url = is_remote(source.address)
        digest.update((source.address if is_url else str(read_manifest(Path(source.address))["files"])).encode())
    elif Path(source.address).is_file():
        digest.update(Path(source.address).read_bytes())
    for path in sorted(Path(source.code).glob("*.py")):
        digest.update(path.read_bytes())
    return {"model": digest.hexdigest(), "kind": source.kind, "trial": source.trial}


def choose_columns(handler: Handler, given: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """The column of each input: `INPUT=COLUMN`, or columns in the order of the inputs; else those of equal names."""
    names = [spec.name for spec in handler.inputs] if handler.inputs is not None else None
    pairs = [one.partition("=") for one in given]
    if given and all(separator for _, separator, _ in pairs):
        chosen = {name: column for name, _, column in pairs}
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
