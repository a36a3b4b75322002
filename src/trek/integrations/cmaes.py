"""The state of a CMA-ES optimizer as plain JSON and back. Optuna samples with it.

Optuna keeps the optimizer as a pickle in the attributes of trials. A pickle that comes out of a database can run
anything, so none goes into a snapshot: Optuna is only ever given pickles that this process made itself.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

_PREFIX = "cma:optimizer"


def has_optimizer(attributes: Mapping[str, Any]) -> bool:
    """Whether a trial holds the optimizer as it was when the trial was drawn."""
    return any(name.startswith(_PREFIX) for name in attributes)


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's other attributes."""
    return {name: value for name, value in attributes.items() if not name.startswith(_PREFIX)}


def optimizer_as_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer that Optuna stored, in this process, in a trial's attributes."""
    from cmaes import CMA

    parts = [attributes[f"{_PREFIX}:{part}"] for part in range(sum(name.startswith(_PREFIX) for name in attributes))]
    made = pickle.loads(bytes.fromhex("".join(parts)))  # noqa: S301 - Optuna made it here, in memory
    assert type(made) is CMA
    return {name: _as_json(value) for name, value in made.__getstate__().items()}


def optimizer_attributes(state: Mapping[str, Any]) -> dict[str, str]:
    """The attributes in which Optuna will find the optimizer of `optimizer_as_json`."""
    from cmaes import CMA

    made = CMA.__new__(CMA)
    made.__setstate__({name: _from_json(value) for name, value in state.items()})
    return {f"{_PREFIX}:0": pickle.dumps(made).hex()}


def _as_json(value: Any) -> Any:
    """Arrays and their scalars by their bytes: JSON numbers cannot hold all of their values."""
    if isinstance(value, np.ndarray | np.float64):
        array = np.asarray(value, dtype="<f8")
        return {"shape": list(array.shape), "bytes": base64.b64encode(array.tobytes()).decode()}
    assert value is None or isinstance(value, bool | int | float), f"unknown state {value!r}"
    return value


def _from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    array = np.frombuffer(base64.b64decode(value["bytes"]), dtype="<f8").reshape(value["shape"]).copy()
    return array[()] if array.ndim == 0 else array
