"""Requests and answers in every format, there and back, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trek.errors import InputError
from trek.serve.codecs import open_codec
from trek.serve.codecs.base import Answer, Request
from trek.serve.codecs.open_inference import HEADER_LENGTH

OUTPUTS = {"y": np.asarray([[1.5, 2.5], [3.5, 4.5]], "float32"), "n": np.asarray([1, 2])}


def _decode(codec: str, body: bytes, **headers: str) -> Request:
    return open_codec(codec).decode(memoryview(bytearray(body)), headers=headers)


def _encode(codec: str, request: Request, outputs: Any = OUTPUTS) -> Answer:
    return open_codec(codec).encode(outputs, request=request, model="m", version="3")


def test_an_object_is_one_row_and_is_answered_by_one() -> None:
    request = _decode("records", b'{"x": [1, 2]}')
    assert request.inputs == {"x": [[1, 2]]}
    one = {name: array[:1] for name, array in OUTPUTS.items()}
    assert json.loads(_encode("records", request, one).body) == {"y": [1.5, 2.5], "n": 1}


def test_a_list_of_objects_is_answered_by_a_list() -> None:
    request = _decode("records", b'[{"x": 1}, {"x": 2}]')
    assert request.inputs == {"x": [1, 2]}
    assert json.loads(_encode("records", request).body) == [{"y": [1.5, 2.5], "n": 1}, {"y": [3.5, 4.5], "n": 2}]


def test_numbers_that_json_lacks_become_null() -> None:
    request = _decode("records", b'{"x": 1}')
    assert json.loads(_encode("records", request, {"y": np.asarray([np.nan])}).body) == {"y": None}


def test_numpy_files_go_there_and_back() -> None:
    file = io.BytesIO()
    np.save(file, np.ones((2, 3)))
    request = _decode("npy", file.getvalue())
    assert request.inputs[""].shape == (2, 3)
    assert np.array_equal(np.load(io.BytesIO(_encode("npy", request).body)), OUTPUTS["y"])
    named = io.BytesIO()
    np.savez(named, a=np.ones(2), b=np.zeros(2))
    request = _decode("npz", named.getvalue())
    assert sorted(request.inputs) == ["a", "b"]
    assert np.load(io.BytesIO(_encode("npz", request).body))["n"].tolist() == [1, 2]


def test_arrow_streams_go_there_and_back() -> None:
    table = pa.table({"x": pa.array([[1.0, 2.0], [3.0, 4.0]]), "t": ["a", "b"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    request = _decode("arrow", sink.getvalue().to_pybytes())
    assert request.inputs["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert request.inputs["t"].tolist() == ["a", "b"]
    found = pa.ipc.open_stream(_encode("arrow", request).body).read_all()
    assert found.column("n").to_pylist() == [1, 2]


def _v2(**changes: Any) -> dict[str, Any]:
    return {"id": "7", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4], **changes}]}


def test_the_protocols_json_keeps_dtype_shape_and_id() -> None:
    request = _decode("v2", json.dumps(_v2()).encode())
    assert request.inputs["x"].dtype == np.float32
    assert request.inputs["x"].tolist() == [[1, 2], [3, 4]]
    answer = json.loads(_encode("v2", request).body)
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("7", "m", "3")
    assert answer["outputs"][0] == {"name": "y", "shape": [2, 2], "datatype": "FP32", "data": [1.5, 2.5, 3.5, 4.5]}


def test_binary_tensors_follow_the_json() -> None:
    head = {"inputs": [{"name": "x", "shape": [3], "datatype": "INT64", "parameters": {"binary_data_size": 24}}]}
    head["inputs"].append({"name": "t", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}})
    head["outputs"] = [{"name": "n", "parameters": {"binary_data": True}}]
    text = json.dumps(head).encode()
    body = text + np.arange(3).tobytes() + struct.pack("<I", 2) + b"hi"
    request = _decode("v2", body, **{HEADER_LENGTH: str(len(text))})
    assert request.inputs["x"].tolist() == [0, 1, 2]
    assert request.inputs["t"].tolist() == ["hi"]
    answer = _encode("v2", request)
    length = int(answer.headers[HEADER_LENGTH])
    [output] = json.loads(answer.body[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 16}
    assert np.frombuffer(answer.body[length:], "int64").tolist() == [1, 2]


def _npy_with_a_pickle() -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        ("records", b"{"),
        ("records", b"[]"),
        ("records", b"3"),
        ("records", b'[{"x": 1}, {"z": 1}]'),
        ("records", b"[" * 100_000),
        ("npy", b"nonsense"),
        ("npy", pickle.dumps([1])),
        ("npy", _npy_with_a_pickle()),
        ("npz", b"PK\x03\x04nonsense"),
        ("arrow", b"nonsense"),
        ("v2", b"{}"),
        ("v2", json.dumps({"inputs": [3]}).encode()),
        ("v2", json.dumps(_v2(shape=[3])).encode()),
        ("v2", json.dumps(_v2(shape=[-1, 2])).encode()),
        ("v2", json.dumps(_v2(datatype="FP12")).encode()),
        ("v2", json.dumps(_v2(data=["a"] * 4)).encode()),
        ("v2", json.dumps(_v2(data=[[1], [2, 3]])).encode()),
        ("v2", json.dumps(_v2(parameters={"binary_data_size": 99})).encode()),
        ("v2", json.dumps({**_v2(), "outputs": 3}).encode()),
    ],
)
def test_a_body_in_another_format_is_refused(codec: str, body: bytes) -> None:
    with pytest.raises(InputError):
        _decode(codec, body)


def test_an_output_that_does_not_exist_is_refused() -> None:
    request = _decode("v2", json.dumps({**_v2(), "outputs": [{"name": "z"}]}).encode())
    with pytest.raises(InputError, match="There are: y, n"):
        _encode("v2", request)
