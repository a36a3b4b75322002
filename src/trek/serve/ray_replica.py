"""What runs on the nodes for a served model: replicas of Ray Serve, and the depot they get their model from.

A replica answers batches with the same BatchRunner and Handler as a worker process of a local server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError

from trek.errors import TrekError
from trek.serve.batch_runner import BatchRunner, Job, failed
from trek.serve.handler_metadata import describe_handler
from trek.serve.handlers import open_handler
from trek.serve.packed_model import PackedModel

Item = tuple[str, dict[str, str], bytes]
"""The codec, headers and body of one request."""
Answered = tuple[int, str, dict[str, str], bytes]
"""The status, content type, headers and body of one answer."""


class ModelDepot:
    """An actor that holds a packed model for replicas, and what became of the first that loaded it.

    It belongs to the process that serves, and ends with it: replicas without a depot remove their application.
    """

    def __init__(self, packed: PackedModel) -> None:
        self._packed = packed
        self._outcome: dict[str, Any] = {}
        self._is_known = asyncio.Event()

    async def packed(self) -> PackedModel:
        """The model."""
        return self._packed

    async def report(self, outcome: dict[str, Any]) -> None:
        """A replica has loaded the model, or failed with an `error`."""
        if not self._is_known.is_set():
            self._outcome = outcome
            self._is_known.set()

    async def outcome(self) -> dict[str, Any]:
        """What the first replica reported; waits for it."""
        await self._is_known.wait()
        return self._outcome

    async def is_there(self) -> bool:
        """Answers."""
        return True


class ModelReplica:
    """One process with the model. Ray Serve starts it, and another one when it ends or fails its health check."""

    def __init__(self, depot: Any, settings: Mapping[str, Any]) -> None:
        """`settings`: device, model, version, max_rows, max_bytes, timeout_s, and the application it belongs to."""
        self._depot = depot
        self._settings = settings
        self._began_s: float | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trek-model")  # a Handler is called by one thread
        self._runner = self._thread.submit(self._load).result()

    def _load(self) -> BatchRunner:
        chosen = self._settings
        try:
            source = ray.get(self._depot.packed.remote()).unpack()
            handler = open_handler(source, device=chosen["device"])
        except Exception as error:
            ray.get(self._depot.report.remote({"error": _reason(error)}))
            raise
        ray.get(self._depot.report.remote(describe_handler(handler)))
        return BatchRunner(
            handler,
            model=chosen["model"],
            version=chosen["version"],
            max_rows=chosen["max_rows"],
            max_bytes=chosen["max_bytes"],
        )

    async def infer(self, items: list[Item]) -> list[Answered]:
        """The answers to requests that came together."""
        jobs = [_job(item) for item in items]
        outcomes = await self._run(lambda: self._runner.run(jobs))
        return [
            (one.status, one.answer.content_type, dict(one.answer.headers), bytes(one.answer.body)) for one in outcomes
        ]

    async def stream(self, item: Item) -> AsyncIterator[bytes | tuple[int, bytes]]:
        """The pieces of one answer, and at last a status and a body."""
        pieces = self._runner.stream(_job(item))
        try:
            while (piece := await self._run(lambda: next(pieces, None))) is not None:
                yield piece
            yield 200, b"{}"
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            outcome = failed(error)
            yield outcome.status, bytes(outcome.answer.body)

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces a replica for which it raises."""
        if self._began_s is not None and time.monotonic() - self._began_s > self._settings["timeout_s"]:
            raise RuntimeError(f"no answer after {self._settings['timeout_s']:g} s")
        try:
            await self._depot.is_there.remote()
        except RayActorError:
            await asyncio.to_thread(serve.delete, self._settings["application"], _blocking=False)

    async def _run(self, work: Any) -> Any:
        self._began_s = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._began_s = None


def _job(item: Item) -> Job:
    codec, headers, body = item
    return Job(codec, headers, memoryview(bytearray(body)))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TrekError) else f"loading it failed: {type(error).__name__}: {error}"
