"""Records: plain JSON. An object is one row, by the names of inputs; a list of objects is several rows.

`{"instances": [row, …]}` is answered as `{"predictions": [row, …]}`, as clients of TensorFlow Serving and KServe ask.
"""

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
        is_wrapped = isinstance(found, dict) and _are_rows(found.get("instances")) and len(found) == 1
        if is_wrapped:
            found = found["instances"]
        if isinstance(found, dict):
            return Request({name: [value] for name, value in found.items()}, {"is_one": True})
        if not _are_rows(found):
            raise InputError("expected a JSON object with the inputs by name, or a list of such objects.")
        names = found[0].keys()
        odd = next((row for row, one in enumerate(found) if one.keys() != names), None)
        if odd is not None:
            raise InputError(f"row {odd} has other inputs than row 0: {sorted(found[odd])} instead of {sorted(names)}.")
        return Request(
            {name: [one[name] for one in found] for name in names}, {"is_one": False, "is_wrapped": is_wrapped}
        )

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """Rows as they were sent: an object, or a list of objects."""
        columns = {name: to_lists(array) for name, array in outputs.items()}
        rows: Any = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if request.options.get("is_wrapped"):
            return Answer(json.dumps({"predictions": rows}).encode())
        return Answer(json.dumps(rows[0] if request.options["is_one"] else rows).encode())


def _are_rows(found: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(isinstance(one, dict) for one in found)
