"""The contract over gRPC, as a client in another language uses it, and the figures for Prometheus."""

from __future__ import annotations

import json
import urllib.request
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2

from trek.ps.grpc_service import SERVICE, serve_grpc
from trek.ps.prometheus import MetricsServer
from trek.ps.protocol import messages as pb
from trek.ps.service import Service

PROTOCOL = Path(pb.__file__).parent


def call(channel: grpc.Channel, method: str, request: Any, *, secret: str = "") -> Any:
    described = pb.DESCRIPTOR.services_by_name["PServer"].methods_by_name[method]
    answer = getattr(pb, described.output_type.name)
    invoke = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    return invoke(request, timeout=60, metadata=[("trek-secret", secret)])


def tensor(values: Any, dtype: int, **named: Any) -> pb.Tensor:
    array = np.asarray(values)
    return pb.Tensor(dtype=dtype, shape=array.shape, content=array.tobytes(), **named)


def test_a_client_of_the_contract_trains_and_reads() -> None:
    service = Service()
    server, port = serve_grpc(service, host="127.0.0.1", port=0, secret="")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        spec = json.dumps({"name": "user", "dim": 2, "initial": {"kind": "zeros"}})
        dense = [tensor(np.ones(3, np.float32), pb.FLOAT32, name="w")]
        model = pb.Model(tables=pb.TableInfos(specs=[spec]), dense=dense, mode=pb.Mode(max_staleness=-1))
        assert not call(channel, "push_model", model).was_initialized
        rows = pb.Rows(
            table="user", ids=tensor([4, -4], pb.INT64), values=tensor(np.ones((2, 2), np.float32), pb.FLOAT32)
        )
        rule = pb.Rule(kind="SGD", settings='{"lr": 0.5}')
        push = pb.PushGradientRequest(source="go", sequence=1, rules=[rule], dense=dense, rows=[rows])
        assert call(channel, "push_gradient", push).version == 1
        assert call(channel, "push_gradient", push).is_repeated
        wanted = pb.PullEmbeddingVectorRequest(name="user", ids=tensor([-4, 9], pb.INT64))
        found = call(channel, "pull_embedding_vector", wanted)
        assert np.frombuffer(found.content, np.float32).tolist() == [-0.5, -0.5, 0, 0]
        [weight] = call(channel, "pull_variable", pb.PullModelRequest(version=-1)).dense
        assert np.frombuffer(weight.content, np.float32).tolist() == [0.5] * 3
        for shape, content in (([1], bytes(9)), ([2], bytes(8)), ([0, 1 << 62], b""), ([-1], b"")):
            wrong = pb.Tensor(dtype=pb.INT64, shape=shape, content=content)
            with pytest.raises(grpc.RpcError, match=r"(?s)INVALID_ARGUMENT.*shape"):
                call(channel, "pull_embedding_vector", pb.PullEmbeddingVectorRequest(name="user", ids=wrong))
        with pytest.raises(grpc.RpcError, match="no table 'tag'"):
            call(channel, "pull_embedding_vector", pb.PullEmbeddingVectorRequest(name="tag", ids=wanted.ids))
    server.stop(grace=None).wait()
    service.close()


def test_a_secret_is_demanded_where_there_is_one() -> None:
    service = Service()
    server, port = serve_grpc(service, host="127.0.0.1", port=0, secret="of this test")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.RpcError, match="missing or wrong"):
            call(channel, "stats", pb.StatsRequest())
        assert call(channel, "stats", pb.StatsRequest(), secret="of this test").document
    server.stop(grace=None).wait()
    service.close()


def serve_until_told(secret: str, connection: Any) -> None:
    server, port = serve_grpc(Service(), host="127.0.0.1", port=0, secret=secret)
    connection.send(port)
    connection.recv()
    server.stop(grace=None).wait()


def peak_mib(pid: int | None) -> int:
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) >> 10


def test_a_call_without_the_secret_is_refused_before_its_message_is_received() -> None:
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve_until_told, args=("of this test", there))
    process.start()
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{here.recv()}", options=options) as channel:
        invoke = channel.unary_unary(f"/{SERVICE}/push_gradient")
        before = peak_mib(process.pid)
        for message in (bytes(200 << 20), b"\xff" * 50):
            for given in ([], [("trek-secret", "wrong")]):
                with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                    invoke(message, timeout=60, metadata=given)
        assert peak_mib(process.pid) - before < 40
        with pytest.raises(grpc.RpcError, match=r"(?s)INVALID_ARGUMENT.*not one of 'push_gradient'"):
            invoke(b"\xff" * 50, timeout=60, metadata=[("trek-secret", "of this test")])
    here.send(None)
    process.join()
    assert process.exitcode == 0


def test_the_compiled_contract_is_that_of_the_source(tmp_path: Path) -> None:
    from grpc_tools import protoc

    out = tmp_path / "made.binpb"
    root = PROTOCOL.parents[2]
    assert protoc.main(["", f"-I{root}", f"-o{out}", str(PROTOCOL / "pserver.proto")]) == 0
    made, kept = (
        descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()) for path in (out, PROTOCOL / "pserver.binpb")
    )
    assert made == kept, "make pserver.binpb anew: see pserver.proto"


def test_figures_are_given_to_prometheus() -> None:
    service = Service()
    infos = pb.TableInfos(specs=[json.dumps({"name": 'a "table"', "dim": 2})])
    service.answer(pb.Envelope(push_embedding_table_infos=infos), np.empty(0, np.uint8))
    server = MetricsServer(service.figures, host="127.0.0.1", port=0)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert 'trek_ps_table_rows{table="a \\"table\\""} 0' in text
    assert 'trek_ps_request_seconds_count{request="push_embedding_table_infos"} 1' in text
    server.close()
    service.close()
