"""The same Service over gRPC, for clients in other languages: `pserver.proto` is all they need.

Beyond loopback, a call must carry the secret as metadata `trek-secret`. It travels unencrypted, as the tensors do.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc

from trek.errors import PortInUse
from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import NO_BODY
from trek.ps.protocol.tensors import move_inside
from trek.ps.service import Service

SERVICE = "trek.ps.PServer"
SECRET = "trek-secret"  # noqa: S105 - the name of the metadata
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_MAX_CALLS = 8


def serve_grpc(service: Service, *, host: str, port: int, secret: str) -> tuple[grpc.Server, int]:
    """Serve over gRPC, too; the server and its port."""
    server = grpc.server(ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="trek-ps-grpc"), options=UNLIMITED)
    methods = {
        method.name: grpc.unary_unary_rpc_method_handler(
            partial(_call, service, method.name, secret),
            request_deserializer=_class(method.input_type.name).FromString,
            response_serializer=_serialized,
        )
        for method in pb.DESCRIPTOR.services_by_name["PServer"].methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise PortInUse(f"gRPC cannot listen at {host}:{port}: {error}. Choose another port.") from error
    server.start()
    return server, bound


def _call(service: Service, method: str, secret: str, request: Any, context: Any) -> Any:
    given = dict(context.invocation_metadata()).get(SECRET, "")
    if secret and not hmac.compare_digest(str(given), secret):
        context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the metadata {SECRET!r} is missing or wrong.")
    envelope, attached = service.answer(pb.Envelope(**{method: request}), NO_BODY)
    kind = envelope.WhichOneof("message") or ""
    if kind == "failure":
        wrong = grpc.StatusCode.INVALID_ARGUMENT if envelope.failure.is_input else grpc.StatusCode.UNAVAILABLE
        context.abort(wrong, envelope.failure.message)
    answer = getattr(envelope, kind)
    if attached is not None:
        move_inside(answer, attached.joined())
    return answer


def _class(name: str) -> Any:
    return getattr(pb, name)


def _serialized(message: Any) -> bytes:
    serialize: Callable[[], bytes] = message.SerializeToString
    return serialize()
