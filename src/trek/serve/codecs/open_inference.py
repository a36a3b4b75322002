"""OpenInference: requests and answers of the Open Inference Protocol, version 2, with its binary tensor extension."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trek.errors import InputError
from trek.serve.codecs.base import Answer, Codec, Request, check_names, read_json, to_lists
from trek.serve.datatypes import DTYPES, datatype_of
from trek.serve.tensor_spec import cast, to_array

HEADER_LENGTH = "inference-header-content-length"
"""The header that says how many bytes of the body are JSON; the rest is binary."""


class OpenInference(Codec):
    """The protocol's JSON, with tensors in it or, as raw bytes, after it."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The inputs, with the dtype and shape that the request gives them."""
        length = _header_length(headers, len(body))
        found = read_json(body[:length])
        if not isinstance(found, dict) or not isinstance(found.get("inputs"), list):
            raise InputError("expected a JSON object with a list of 'inputs'.")
        rest = body[length:]
        inputs: dict[str, Any] = {}
        described = [(one, *_describe(one)) for one in found["inputs"]]
        check_names([name for _, name, _, _ in described])
        for one, name, shape, kind in described:
            size = (one.get("parameters") or {}).get("binary_data_size")
            if size is None:
                inputs[name] = _from_json(one.get("data"), name=name, shape=shape, kind=kind)
                continue
            if not isinstance(size, int) or not 0 <= size <= len(rest):
                raise InputError(f"input {name!r}: binary_data_size {size!r} is not a size that the body has.")
            inputs[name] = from_binary(rest[:size], name=name, shape=shape, kind=kind)
            rest = rest[size:]
        return Request(inputs, {"id": found.get("id"), **_wanted(found)})

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """The outputs asked for, or all."""
        wanted: dict[str, bool] = request.options["outputs"] or dict.fromkeys(outputs, request.options["is_binary"])
        described, pieces = [], []
        for name, is_binary in wanted.items():
            if name not in outputs:
                raise InputError(f"output {name!r} does not exist. There are: {', '.join(outputs)}.")
            array = outputs[name]
            one: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype_of(array)}
            if is_binary:
                pieces.append(to_binary(array))
                one["parameters"] = {"binary_data_size": len(pieces[-1])}
            else:
                one["data"] = to_lists(array.reshape(-1))
            described.append(one)
        answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": described}
        if request.options["id"] is not None:
            answer["id"] = request.options["id"]
        text = json.dumps(answer).encode()
        if not pieces:
            return Answer(text)
        return Answer(b"".join([text, *pieces]), "application/octet-stream", {HEADER_LENGTH: str(len(text))})


def _header_length(headers: Mapping[str, str], size: int) -> int:
    text = headers.get(HEADER_LENGTH)
    if text is None:
        return size
    if not (text.isascii() and text.isdigit() and int(text) <= size):
        raise InputError(f"Inference-Header-Content-Length must be a number of at most {size}, got {text!r}.")
    return int(text)


def _describe(one: Any) -> tuple[str, list[int], str]:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str):
        raise InputError("every input must be an object with a 'name', a 'shape' and a 'datatype'.")
    name, shape, kind = one["name"], one.get("shape"), one.get("datatype")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise InputError(f"input {name!r}: 'shape' must be a list of sizes, got {shape!r:.60}.")
    if kind not in DTYPES:
        raise InputError(f"input {name!r}: 'datatype' must be one of {', '.join(DTYPES)}, got {kind!r:.60}.")
    return name, shape, kind


def _from_json(data: Any, *, name: str, shape: list[int], kind: str) -> np.ndarray:
    if not isinstance(data, list):
        raise InputError(f"input {name!r}: 'data' must be a list.")
    array = cast(to_array(data, name=name), name=name, dtype=DTYPES[kind])
    return shaped(array, name=name, shape=shape)


def from_binary(data: memoryview, *, name: str, shape: list[int], kind: str) -> np.ndarray:
    """A tensor of raw bytes; InputError if they are too many or too few."""
    if kind == "BYTES":
        found = list(_texts(data, name=name))
        texts = np.empty(len(found), dtype=object)
        texts[:] = found
        return shaped(texts, name=name, shape=shape)
    dtype = np.dtype(DTYPES[kind])
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise InputError(f"input {name!r} has {len(data)} bytes, which are not {kind} values of shape {shape}.")
    if kind == "BOOL" and len(data) and max(data) > 1:
        raise InputError(f"input {name!r} has the byte {max(data)}, but values of BOOL are 0 and 1.")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _texts(data: memoryview, *, name: str) -> Iterator[str]:
    """Each text is preceded by its length, in four bytes."""
    at = 0
    while at < len(data):
        try:
            (size,) = struct.unpack_from("<I", data, at)
            raw = bytes(data[at + 4 : at + 4 + size])
            yield raw.decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise InputError(f"input {name!r} is not a list of texts in UTF-8: {error}.") from None
        if len(raw) != size:
            raise InputError(f"input {name!r} ends within a text.")
        at += 4 + size


def shaped(array: np.ndarray, *, name: str, shape: list[int]) -> np.ndarray:
    """Values in a shape that they fit."""
    if array.size != math.prod(shape):
        raise InputError(f"input {name!r} has {array.size} values, which do not make the shape {shape}.")
    try:
        return array.reshape(shape)
    except ValueError as error:
        raise InputError(f"input {name!r} cannot have {len(shape)} dimensions: {error}.") from None


def _wanted(found: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs asked for by name, and whether each is to be binary; whether all are."""
    outputs, parameters = found.get("outputs") or [], found.get("parameters") or {}
    is_binary = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "name" in one for one in outputs):
        raise InputError("'outputs' must be a list of objects with a 'name'.")
    chosen = {str(one["name"]): bool((one.get("parameters") or {}).get("binary_data", is_binary)) for one in outputs}
    return {"outputs": chosen, "is_binary": is_binary}


def to_binary(array: np.ndarray) -> bytes:
    """The raw bytes of a tensor; each text is preceded by its length."""
    if array.dtype == object:
        texts = [str(one).encode() for one in array.reshape(-1)]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return np.ascontiguousarray(array).tobytes()
