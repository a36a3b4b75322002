"""The same Service over gRPC, for clients in other languages: `pserver.proto` is all they need.

Beyond loopback, a call must carry the secret as metadata `trek-secret`. It travels unencrypted, as the tensors do. A
call without it is refused before its message is received, so it costs no memory.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from trek.errors import PortInUse
from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import NO_BODY
from trek.ps.protocol.tensors import move_inside
from trek.ps.service import Service

SERVICE = "trek.ps.PServer"
SECRET = "trek-secret"  # noqa: S105 - the name of the metadata
MAX_BYTES = (1 << 31) - 1
"""Of a message, as in any implementation of protobuf."""
_OPTIONS = [("grpc.max_receive_message_length", MAX_BYTES), ("grpc.max_send_message_length", MAX_BYTES)]
_MAX_CALLS = 8


def serve_grpc(service: Service, *, host: str, port: int, secret: str) -> tuple[grpc.Server, int]:
    """Serve over gRPC, too; the server and its port."""
    threads = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="trek-ps-grpc")
    server = grpc.server(threads, options=_OPTIONS, interceptors=[_SecretCheck(secret)] if secret else [])
    methods = {
        method.name: grpc.unary_unary_rpc_method_handler(  # messages are parsed in `_call`, after the secret is known
            partial(_call, service, method.name), response_serializer=_serialized
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


class _SecretCheck(grpc.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Refuses calls by their metadata, which comes before their message."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # gRPC receives the message of a unary call before its handler runs, and that of a stream when it is asked for.
        self._refusal = grpc.stream_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler of a call."""
        given = str(dict(details.invocation_metadata).get(SECRET, "")).encode()
        return continuation(details) if hmac.compare_digest(given, self._secret) else self._refusal


def _refuse(requests: Any, context: Any) -> NoReturn:
    del requests
    context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the metadata {SECRET!r} is missing or wrong.")
    raise AssertionError("abort raises")


def _call(service: Service, method: str, message: bytes, context: Any) -> Any:
    request = pb.Envelope()
    try:
        getattr(request, method).SetInParent()
        getattr(request, method).MergeFromString(message)
    except DecodeError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message is not one of {method!r}: {error}.")
    envelope, attached = service.answer(request, NO_BODY)
    kind = envelope.WhichOneof("message") or ""
    if kind == "failure":
        wrong = grpc.StatusCode.INVALID_ARGUMENT if envelope.failure.is_input else grpc.StatusCode.UNAVAILABLE
        context.abort(wrong, envelope.failure.message)
    answer = getattr(envelope, kind)
    if attached is not None:
        move_inside(answer, attached.joined())
    return answer


def _serialized(message: Any) -> bytes:
    serialize: Callable[[], bytes] = message.SerializeToString
    return serialize()
