"""The Open Inference Protocol over gRPC, asked by a real client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'trek-ml[grpc]'")

import grpc
from google.protobuf import descriptor_pb2

from trek.errors import PortInUse
from trek.serve import grpc_protocol
from trek.serve.grpc_protocol.messages import SERVICE, message
from trek.serve.server import Server
from trek.testing.serving import CODE

FUNCTIONS = "trek.testing.served_functions"
PROTOCOL = Path(grpc_protocol.__file__).parent


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    models = {"1": f"{FUNCTIONS}:double", "2": f"{FUNCTIONS}:upper"}
    weights = {"1": 1, "2": 0}
    with Server(
        models, weights=weights, code=CODE, port=0, grpc_port=0, name="numbers", key="secret", max_body_mb=0.1
    ) as running:
        yield running


def _call(server: Server, method: str, *, key: str = "secret", **fields: Any) -> Any:
    request, answer = message(f"{method}Request"), message(f"{method}Response")
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request(**fields), metadata=[("authorization", f"Bearer {key}")], timeout=60)


def _infer(server: Server, *, datatype: str = "INT64", shape: tuple[int, ...] = (3,), **fields: Any) -> Any:
    contents = fields.pop("contents", {})
    tensor = {"name": fields.pop("input", "x"), "datatype": datatype, "shape": shape, "contents": contents}
    return _call(server, "ModelInfer", model_name="numbers", inputs=[tensor], **fields)


def test_the_server_tells_what_it_is(server: Server) -> None:
    assert _call(server, "ServerLive", key="").live
    assert _call(server, "ServerReady", key="").ready
    assert _call(server, "ModelReady", name="numbers", version="2").ready
    assert _call(server, "ServerMetadata").name == "trek"
    assert list(_call(server, "ModelMetadata", name="numbers").versions) == ["1", "2"]


def test_values_and_raw_bytes_get_the_models_answer(server: Server) -> None:
    found = _infer(server, contents={"int64_contents": [1, 2, 3]}, id="seven")
    assert (found.model_name, found.model_version, found.id) == ("numbers", "1", "seven")
    assert (found.outputs[0].name, found.outputs[0].datatype, list(found.outputs[0].shape)) == ("y", "INT64", [3])
    assert np.frombuffer(found.raw_output_contents[0], "int64").tolist() == [2, 4, 6]
    raw = np.array([4, 5, 6], "float32").tobytes()
    found = _infer(server, datatype="FP32", raw_input_contents=[raw], outputs=[{"name": "y"}])
    assert np.frombuffer(found.raw_output_contents[0], "float32").tolist() == [8, 10, 12]
    texts = {"input": "text", "datatype": "BYTES", "shape": (1,), "contents": {"bytes_contents": [b"hello"]}}
    assert _infer(server, model_version="2", **texts).raw_output_contents[0] == b"\x05\x00\x00\x00HELLO"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"shape": (4,), "contents": {"int64_contents": [1]}}, "INVALID_ARGUMENT", "do not make the shape"),
        ({"raw_input_contents": [b"123"]}, "INVALID_ARGUMENT", "3 bytes"),
        ({"datatype": "FP8"}, "INVALID_ARGUMENT", "must have one of the datatypes"),
        ({"raw_input_contents": [b"", b""]}, "INVALID_ARGUMENT", "Send one for each"),
        ({"input": "z", "contents": {"int64_contents": [1, 2, 3]}}, "INVALID_ARGUMENT", "'x' is missing"),
        ({"contents": {"int64_contents": [1, 2, -3]}}, "INTERNAL", "ValueError: negative"),
        ({"model_version": "9"}, "NOT_FOUND", "version '9' does not exist"),
        ({"raw_input_contents": [b"0" * 300_000]}, "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_a_wrong_request_is_told_why(server: Server, fields: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _infer(server, **fields)
    assert caught.value.code().name == code
    assert words in caught.value.details()


def test_other_models_and_wrong_keys_are_refused(server: Server) -> None:
    with pytest.raises(grpc.RpcError, match="model 'other' does not exist"):
        _call(server, "ModelMetadata", name="other")
    for method in ("ModelInfer", "ServerMetadata"):
        with pytest.raises(grpc.RpcError, match="a valid key is required"):
            _call(server, method, key="wrong")


def test_requests_are_counted_with_those_of_http(server: Server) -> None:
    _infer(server, contents={"int64_contents": [1, 2, 3]})
    headers = {"authorization": "Bearer secret"}
    text = httpx.get(f"{server.url}/metrics", headers=headers, trust_env=False).text
    assert 'trek_serve_requests_total{version="1",status="200"}' in text


def test_a_port_that_is_taken_is_one_error(server: Server) -> None:
    assert server.grpc_address is not None
    port = int(server.grpc_address.rpartition(":")[2])
    with pytest.raises(PortInUse, match=f"{port}.*Choose another port"):
        Server(f"{FUNCTIONS}:double", code=CODE, port=0, grpc_port=port).start()


def test_the_compiled_protocol_is_that_of_the_source(tmp_path: Path) -> None:
    from grpc_tools import protoc

    out = tmp_path / "made.binpb"
    assert protoc.main(["", f"-I{PROTOCOL.parents[2]}", f"-o{out}", str(PROTOCOL / "inference.proto")]) == 0
    made, kept = (
        descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()) for path in (out, PROTOCOL / "inference.binpb")
    )
    assert made == kept, "make inference.binpb anew: see inference.proto"
