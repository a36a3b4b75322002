"""Requests and answers in every format, there and back, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tracemalloc
import warnings
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trek.errors import InputError
from trek.serve.codecs import open_codec
from trek.serve.codecs.arrow_size import unpacked_bytes
from trek.serve.codecs.arrow_stream import to_rows
from trek.serve.codecs.base import Answer, Request, TooLarge
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


@pytest.mark.parametrize(
    ("datatype", "value", "found"),
    [
        ("INT32", 1.0, 1),
        ("INT64", 9007199254740993, 9007199254740993),
        ("UINT64", 18446744073709551615, 18446744073709551615),
        ("FP32", 7, 7.0),
        ("FP64", 0.1, 0.1),
        ("BOOL", True, True),
        ("BOOL", 0, False),
        ("BYTES", "a\0", "a\0"),
        ("BYTES", ["a"], "a"),
    ],
)
def test_values_of_the_protocol_come_as_they_were_sent(datatype: str, value: Any, found: Any) -> None:
    request = _decode("v2", json.dumps(_v2(shape=[1], datatype=datatype, data=[value])).encode())
    assert request.inputs["x"].tolist() == [found]


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("INT32", 1.9),
        ("INT32", None),
        ("INT64", True),
        ("INT8", 300),
        ("INT64", 1 << 63),
        ("UINT64", -1),
        ("UINT64", 1 << 64),
        ("UINT8", "7"),
        ("FP32", "1.5"),
        ("FP32", None),
        ("FP32", True),
        ("FP32", 1e300),
        ("FP16", 1e6),
        ("FP64", {"a": 1}),
        ("FP64", 10**400),
        ("BOOL", "false"),
        ("BOOL", 5),
        ("BYTES", 5),
        ("BYTES", None),
        ("BYTES", {"a": 1}),
    ],
)
def test_values_of_the_protocol_never_become_others(datatype: str, value: Any) -> None:
    with pytest.raises(InputError, match=r"^input 'x' .*\.$"):
        _decode("v2", json.dumps(_v2(shape=[1], datatype=datatype, data=[value])).encode())


def test_bytes_that_are_no_booleans_are_refused() -> None:
    head = {"inputs": [{"name": "x", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}}]}
    text = json.dumps(head).encode()
    assert _decode("v2", text + b"\0\1", **{HEADER_LENGTH: str(len(text))}).inputs["x"].tolist() == [False, True]
    with pytest.raises(InputError, match="the byte 5"):
        _decode("v2", text + b"\0\5", **{HEADER_LENGTH: str(len(text))})


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (pa.array([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]]),
        (pa.array([[[1], [2]], [[3], [4]]]), [[[1], [2]], [[3], [4]]]),
        (pa.array([["a", "b"], ["c", "d"]]), [["a", "b"], ["c", "d"]]),
        (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)).slice(1, 1), [[3, 4]]),
        (pa.array([[], []], pa.list_(pa.int8())), [[], []]),
    ],
)
def test_lists_of_one_length_become_rows(column: pa.Array, rows: list[Any]) -> None:
    assert to_rows(column, name="x").tolist() == rows


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [2, 3]]), r"lists of 1 to 2 values.*Pad or crop"),
        (pa.array([[1], None]), "1 missing values"),
        (pa.array([[1], [None]]), "1 missing values"),
        (pa.array(["a", None]), "1 missing values"),
    ],
)
def test_columns_that_are_no_arrays_are_refused(column: pa.Array, message: str) -> None:
    with pytest.raises(InputError, match=f"^column 'x' has {message}"):
        to_rows(column, name="x")


def test_texts_of_an_answer_that_would_fill_the_memory_as_numpy_are_refused() -> None:
    texts = np.asarray(["a" * 10_000_000, *["b"] * 100], dtype=object)
    for codec in ("npy", "npz"):
        with pytest.raises(InputError, match="larger than 1 GiB as a NumPy file"):
            open_codec(codec).encode({"y": texts}, request=Request({}), model="m", version="1")


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


def _stream(table: pa.Table | pa.RecordBatch, *, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write(table)
    return bytes(sink.getvalue().to_pybytes())


def _named(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


MANY = 1 << 20
BOMBS = {
    "arrow zstd": ("arrow", _stream(pa.table({"x": np.zeros(MANY)}), compression="zstd")),
    "arrow lz4": ("arrow", _stream(pa.table({"x": np.zeros(MANY)}), compression="lz4")),
    "arrow lists": (
        "arrow",
        _stream(pa.table({"x": pa.FixedSizeListArray.from_arrays(np.zeros(MANY), 64)}), compression="zstd"),
    ),
    "arrow texts": ("arrow", _stream(pa.table({"x": ["a" * 4096] * 2048}), compression="zstd")),
    "arrow dictionary": (
        "arrow",
        _stream(
            pa.table({"x": pa.DictionaryArray.from_arrays(np.zeros(10_000, "int8"), ["a" * 10_000])}),
            compression="zstd",
        ),
    ),
    "arrow dictionary that is packed": (
        "arrow",
        _stream(pa.table({"x": pa.DictionaryArray.from_arrays([0], ["a" * 8 * MANY])}), compression="zstd"),
    ),
    "npz": ("npz", _named(x=np.zeros(MANY))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_body_that_unpacks_to_much_is_refused_before_it_is_unpacked(name: str) -> None:
    codec, body = BOMBS[name]
    assert len(body) < 200_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"unpacks to [\d.]+ MiB, and at most 1 MiB"):
            open_codec(codec, max_bytes=1 << 20).decode(memoryview(bytearray(body)), headers={})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_the_size_of_an_arrow_stream_is_that_of_its_columns(compression: str | None) -> None:
    table = pa.table(
        {
            "x": np.arange(3000) % 7,
            "t": ["a", "bc", ""] * 1000,
            "l": pa.array([[1.0], [2.0], [3.0]] * 1000),
            "d": pa.array(["p", "q", "q"] * 1000).dictionary_encode(),
            "b": [True, False, True] * 1000,
        }
    )
    found = unpacked_bytes(pa.ipc.MessageReader.open_stream(_stream(table, compression=compression)))
    assert table.nbytes <= found < table.nbytes + 64 * 20  # buffers are padded
    request = _decode("arrow", _stream(table, compression=compression))
    assert {name: array.tolist() for name, array in request.inputs.items()} == table.to_pydict()


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(10),
        pa.RunEndEncodedArray.from_arrays([1 << 30], [1.0]),
        pa.array(["a"], pa.string_view()),
        pa.array([{"a": 1}]),
        pa.array([b"a"]),
        pa.array([[]] * 5, pa.list_(pa.null(), 0)),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_types_that_no_array_holds_are_refused(column: pa.Array) -> None:
    with pytest.raises(InputError, match="which a model cannot take"):
        _decode("arrow", _stream(pa.record_batch({"x": column})))


@pytest.mark.parametrize("dtype", ["U0", "S0", "V0"])
def test_values_without_bytes_are_refused(dtype: str) -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": f"<{dtype}", "fortran_order": False, "shape": (10**12,)})
    with pytest.raises(InputError, match="no bytes"):
        _decode("npy", file.getvalue())


def test_a_head_that_announces_what_no_memory_holds_is_refused() -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**17,)})
    with pytest.raises(InputError, match="not a NumPy file"):
        _decode("npy", file.getvalue())


def _twice(codec: str) -> bytes:
    """A request with two inputs x."""
    if codec == "arrow":
        column = pa.array([1, 2, 3])
        return _stream(pa.RecordBatch.from_arrays([column, column], names=["x", "x"]))
    if codec == "npz":
        file, archive = io.BytesIO(), io.BytesIO()
        np.save(file, np.zeros(3))
        with warnings.catch_warnings(), zipfile.ZipFile(archive, "w") as members:
            warnings.simplefilter("ignore")  # zipfile warns of the name
            for _ in range(2):
                members.writestr("x.npy", file.getvalue())
        return archive.getvalue()
    one = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    return json.dumps({"inputs": [one, {**one, "data": [2.0]}]}).encode()


@pytest.mark.parametrize("codec", ["arrow", "npz", "v2"])
def test_an_input_that_is_there_twice_is_refused(codec: str) -> None:
    with pytest.raises(InputError, match="more than one input 'x'"):
        _decode(codec, _twice(codec))


@given(st.integers(0, 400), st.integers(0, 255))
def test_damaged_arrow_streams_are_refused_or_read(at: int, byte: int) -> None:
    body = bytearray(_stream(pa.table({"x": [1, 2, 3], "t": ["a", "b", "c"]}), compression="zstd"))
    body[at % len(body)] = byte
    try:
        found = _decode("arrow", bytes(body))
    except InputError:
        return
    assert all(len(array) <= 3 for array in found.inputs.values())
