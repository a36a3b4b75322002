"""GrpcServer: the Open Inference Protocol over gRPC, beside HTTP, from the same workers.

As over HTTP, no tensor is decoded in this process: a worker gets the bytes of a ModelInferRequest, and gives those of
the answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from trek._version import __version__
from trek.errors import PortInUse
from trek.serve.access_log import AccessLog
from trek.serve.admission import is_admitted
from trek.serve.grpc_protocol.messages import DESCRIPTOR, SERVICE, ModelInferRequest, message
from trek.serve.model_api import EXTENSIONS, Readiness
from trek.serve.model_pool import ModelPool
from trek.serve.model_versions import ModelVersions
from trek.serve.serving_metrics import ServingMetrics
from trek.serve.settings import ServeSettings
from trek.serve.tickets import Refused, Reply, Ticket, error_reply

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_OPEN = ("ServerLive", "ServerReady")
_OVERHEAD_BYTES = 1 << 16
"""What a message may have beside its tensors."""


class GrpcServer:
    """One service. All methods are for the event loop of the server."""

    def __init__(
        self,
        versions: ModelVersions,
        *,
        settings: ServeSettings,
        metrics: ServingMetrics,
        readiness: Readiness,
        access_log: AccessLog | None,
        is_allowed: Callable[[str], Awaitable[bool]] | None,
    ) -> None:
        self._versions = versions
        self._settings = settings
        self._metrics = metrics
        self._readiness = readiness
        self._log = access_log
        self._is_allowed = is_allowed
        limit = settings.max_body_bytes + _OVERHEAD_BYTES
        options = [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", -1)]
        # Else two servers could listen on one port, and each would get some of the calls.
        self._server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 0)])
        methods = {one.name: self._handler(one) for one in DESCRIPTOR.services_by_name["GRPCInferenceService"].methods}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))

    async def start(self) -> int:
        """Listen; the port. PortInUse if another program has it."""
        host, port = self._settings.host, self._settings.grpc_port
        try:
            bound: int = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise PortInUse(f"gRPC cannot listen at {host}:{port}: {error}. Choose another port.") from error
        await self._server.start()
        return bound

    async def stop(self, *, grace_s: float) -> None:
        """Answer what was taken, and end."""
        await self._server.stop(grace_s)

    def _handler(self, method: Any) -> Any:
        """ModelInfer is passed on as bytes; every other method is a message that `_answer_…` makes."""
        if method.name == "ModelInfer":
            return grpc.unary_unary_rpc_method_handler(self._infer)
        answer = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
        }[method.name]
        made = message(method.output_type.name)

        async def respond(request: Any, context: Any) -> Any:
            if method.name not in _OPEN:
                await self._require_key(context)
            try:
                return made(**answer(request))
            except Refused as refused:
                await _abort(context, refused.reply)

        return grpc.unary_unary_rpc_method_handler(
            respond,
            request_deserializer=message(method.input_type.name).FromString,
            response_serializer=made.SerializeToString,
        )

    async def _require_key(self, context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not await is_admitted(str(given).encode(), key=self._settings.key, is_allowed=self._is_allowed):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid key is required.")

    # -- what the server and the model are

    def _server_live(self, request: Any) -> dict[str, Any]:
        return {"live": True}

    def _server_ready(self, request: Any) -> dict[str, Any]:
        return {"ready": self._versions.is_ready and not self._readiness.is_draining}

    def _server_metadata(self, request: Any) -> dict[str, Any]:
        return {"name": "trek", "version": __version__, "extensions": EXTENSIONS}

    def _model_ready(self, request: Any) -> dict[str, Any]:
        return {"ready": self._find(request.name, request.version, is_chosen=False).num_ready > 0}

    def _model_metadata(self, request: Any) -> dict[str, Any]:
        pool = self._find(request.name, request.version, is_chosen=False)
        return {
            "name": self._settings.name,
            "versions": [request.version] if request.version else list(self._versions.pools),
            "platform": "trek_pytorch",
            "inputs": pool.metadata.get("inputs") or [],
            "outputs": pool.metadata.get("outputs") or [],
        }

    def _find(self, model: str, version: str, *, is_chosen: bool) -> ModelPool:
        """The workers of a version; without one, those whose turn it is if `is_chosen`, else those of the first."""
        if model != self._settings.name:
            raise Refused(error_reply(404, f"model {model!r} does not exist. There is: {self._settings.name}."))
        return self._versions.find(version or (None if is_chosen else next(iter(self._versions.pools))))

    # -- inference

    async def _infer(self, body: bytes, context: Any) -> bytes:
        await self._require_key(context)
        began_s, facts = time.perf_counter(), {"version": ""}
        try:
            reply = await self._ask(body, facts)
        except Refused as refused:
            reply = refused.reply
        self._record(reply, time.perf_counter() - began_s, facts, peer=context.peer(), num_bytes=len(body))
        if reply.status != 200:
            await _abort(context, reply)
        return reply.body

    async def _ask(self, body: bytes, facts: dict[str, str]) -> Reply:
        try:
            request = ModelInferRequest.FromString(body)
        except DecodeError as error:
            raise Refused(error_reply(400, f"the body is not a ModelInferRequest: {error}.")) from None
        pool = self._find(request.model_name, request.model_version, is_chosen=True)
        facts["version"] = pool.version
        ticket = Ticket("grpc", {}, body, asyncio.get_running_loop().create_future())
        pool.submit(ticket)
        try:
            return await ticket.reply
        except asyncio.CancelledError:
            pool.cancel(ticket)
            raise

    def _record(self, reply: Reply, duration_s: float, facts: dict[str, str], *, peer: str, num_bytes: int) -> None:
        self._metrics.count_request(version=facts["version"], status=reply.status, duration_s=duration_s)
        if self._log is not None:
            self._log.write(
                method="GRPC",
                path=f"/{SERVICE}/ModelInfer",
                status=reply.status,
                duration_s=duration_s,
                client=peer,
                bytes=num_bytes,
                **facts,
            )


async def _abort(context: Any, reply: Reply) -> None:
    text = json.loads(reply.body)["error"]
    await context.abort(_CODES.get(reply.status, grpc.StatusCode.UNKNOWN), text)
