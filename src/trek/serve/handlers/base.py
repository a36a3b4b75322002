"""Handler: a loaded model that answers batches of rows. Knows nothing of HTTP, of processes or of files of data.

Contracts, for every Handler: one thread calls it; `predict` gets arrays with the same number of rows, and returns
arrays with that number of rows; a row's answer does not depend on the other rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.model_source import ModelSource
from trek.serve.tensor_spec import TensorSpec, check_names, to_array

Arrays = dict[str, np.ndarray]


class Handler(ABC):
    """A loaded model."""

    inputs: Sequence[TensorSpec] | None = None
    """What it takes; None if it takes inputs of any name and shape."""
    outputs: Sequence[TensorSpec] | None = None
    """What it returns; None if that is not known before."""
    is_stream = False
    """Whether it answers by `stream`, piece by piece, and not by `predict`."""

    @classmethod
    @abstractmethod
    def open(cls, source: ModelSource, *, device: str, number: int = 0) -> Handler:
        """Load the model; InputError or CheckpointError, with the reason, if that is impossible.

        Where `device` does not say which GPU, `number` does, counted around.
        """

    @abstractmethod
    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs for a batch of rows."""

    def stream(self, inputs: Mapping[str, np.ndarray]) -> Iterator[Any]:
        """The pieces of an answer to one request."""
        raise InputError("this model answers at once. Use the route for inference.")

    def fit(self, inputs: Mapping[str, Any]) -> Arrays:
        """The inputs of one request as arrays that `predict` takes; InputError, with the reason, for others."""
        if self.inputs is None:
            arrays = {name: to_array(values, name=name) for name, values in inputs.items()}
        else:
            check_names(inputs, self.inputs)
            arrays = {spec.name: spec.fit(inputs[spec.name]) for spec in self.inputs}
        sizes = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
        if not sizes or len(set(sizes.values())) > 1 or None in sizes.values():
            raise InputError(f"all inputs must have the same number of rows, got {sizes or 'no inputs'}.")
        empty = next((name for name, array in arrays.items() if not array.size and len(array) > 1), None)
        if empty is not None:
            raise InputError(f"input {empty!r} has {len(arrays[empty])} rows without a value. Send values.")
        return arrays


def check_rows(outputs: Mapping[str, Any], num_rows: int) -> None:
    """InputError unless there is one row for each row of input."""
    for name, array in outputs.items():
        found = array.shape[0] if array.ndim else None
        if found != num_rows:
            raise InputError(
                f"the model returned {found if found is not None else 'a single value'} for {name!r} where "
                f"{num_rows} rows are expected. Return one row for each row of input."
            )
