"""Records: plain JSON. An object is one row, by the names of inputs; a list of objects is several rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.codecs.base import Answer, Codec, Request, read_json, to_lists


class Records(Codec):
    """Plain JSON."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """Rows, put together by input."""
        found = read_json(body)
        if isinstance(found, dict):
            return Request({name: [value] for name, value in found.items()}, {"is_one": True})
        if not (isinstance(found, list) and found and all(isinstance(one, dict) for one in found)):
            raise InputError("expected a JSON object with the inputs by name, or a list of such objects.")
        names = found[0].keys()
        odd = next((row for row, one in enumerate(found) if one.keys() != names), None)
        if odd is not None:
            raise InputError(f"row {odd} has other inputs than row 0: {sorted(found[odd])} instead of {sorted(names)}.")
        return Request({name: [one[name] for one in found] for name in names}, {"is_one": False})

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """Rows as they were sent: an object, or a list of objects."""
        columns = {name: to_lists(array) for name, array in outputs.items()}
        rows: Any = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return Answer(json.dumps(rows[0] if request.options["is_one"] else rows).encode())
