"""GrpcMessages: requests and answers of the Open Inference Protocol as gRPC carries them, in protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from trek.errors import InputError
from trek.serve.codecs.base import Answer, Codec, Request, check_names
from trek.serve.codecs.open_inference import from_binary, shaped, to_binary
from trek.serve.datatypes import DTYPES, datatype_of
from trek.serve.grpc_protocol.messages import ModelInferRequest, ModelInferResponse

_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(["INT8", "INT16", "INT32"], "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(["UINT8", "UINT16", "UINT32"], "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where the values of a datatype are; those of FP16 are always raw."""


class GrpcMessages(Codec):
    """A ModelInferRequest, and a ModelInferResponse with raw tensors."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The inputs, with the dtype and shape that the request gives them."""
        try:
            found = ModelInferRequest.FromString(bytes(body))
        except DecodeError as error:
            raise InputError(f"the body is not a ModelInferRequest: {error}.") from None
        check_names([one.name for one in found.inputs])
        raw = list(found.raw_input_contents)
        if raw and len(raw) != len(found.inputs):
            raise InputError(f"{len(raw)} raw contents were sent for {len(found.inputs)} inputs. Send one for each.")
        inputs = {
            one.name: _read(one, memoryview(bytearray(raw[index])) if raw else None)
            for index, one in enumerate(found.inputs)
        }
        return Request(inputs, {"id": found.id, "outputs": [one.name for one in found.outputs]})

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """The outputs asked for, or all."""
        answer = ModelInferResponse(model_name=model, model_version=version, id=request.options["id"])
        for name in request.options["outputs"] or list(outputs):
            if name not in outputs:
                raise InputError(f"output {name!r} does not exist. There are: {', '.join(outputs)}.")
            array = outputs[name]
            answer.outputs.add(name=name, datatype=datatype_of(array), shape=array.shape)
            answer.raw_output_contents.append(to_binary(array))
        return Answer(answer.SerializeToString(), "application/grpc")


def _read(tensor: Any, raw: memoryview | None) -> np.ndarray:
    name, shape, kind = tensor.name, list(tensor.shape), tensor.datatype
    if kind not in DTYPES or any(size < 0 for size in shape):
        raise InputError(
            f"input {name!r} must have one of the datatypes {', '.join(DTYPES)} and a shape of sizes, got {kind!r} "
            f"and {shape}."
        )
    if raw is not None:
        return from_binary(raw, name=name, shape=shape, kind=kind)
    if kind not in _FIELDS:
        raise InputError(f"input {name!r}: values of {kind} must be sent as raw contents.")
    values = getattr(tensor.contents, _FIELDS[kind])
    try:
        array = _texts(values) if kind == "BYTES" else np.asarray(values, dtype=DTYPES[kind])
    except (ValueError, OverflowError) as error:
        raise InputError(f"input {name!r} is not {kind}: {error}.") from None
    return shaped(array, name=name, shape=shape)


def _texts(values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = [one.decode() for one in values]
    return array
