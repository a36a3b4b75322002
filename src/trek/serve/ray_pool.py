"""RayPool: one version of a model as an application of Ray Serve, seen from the front process.

Ray Serve places the replicas, and replaces those that end. Requests, batches, retries and overload are decided in the
front process, as for worker processes of this machine. The model reaches the nodes through Ray's object store.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError

from trek.data.execution.ray_nodes import cluster_resources, require_same_versions
from trek.engines.ray.connection import connect
from trek.engines.ray.options import RayOptions
from trek.errors import InputError
from trek.serve.model_pool import ModelPool, unavailable
from trek.serve.packed_model import PackedModel
from trek.serve.ray_replica import Item, ModelDepot, ModelReplica
from trek.serve.settings import check_engine_options
from trek.serve.tickets import Reply, Ticket

logger = logging.getLogger(__name__)
_DEPLOYMENT = "ModelReplica"
_LOOK_S = 1.0
_HEALTH_S = 5.0
_serve_calls = threading.Lock()
"""Ray Serve's functions, which change what the whole process pickles how, fail when two threads call them at once."""
_OPTIONS = ("address", "cpus", "gpus", "memory_gb", "resources")
"""Of the engine, those that say what a replica takes; Ray Serve places it."""
_QUIET = {"log_level": "WARNING", "enable_access_log": False}


class RayPool(ModelPool):
    """Replicas on a Ray cluster."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        check_engine_options(self._settings.engine_options, known=_OPTIONS)
        self._options = RayOptions(**self._settings.engine_options)
        self._application = f"trek-{self._settings.name}-{self.version}-{uuid.uuid4().hex[:8]}"
        self._depot: Any = None
        self._handle: Any = None
        self._num_ready = 0
        self._working: dict[asyncio.Task[None], list[Ticket]] = {}

    async def start(self) -> None:
        """Start all replicas; InputError if the model cannot be loaded, or the cluster has no room for one."""
        try:
            connect(self._options.address)  # in this thread: Ray warns about others
            await asyncio.to_thread(self._deploy)
            self.metadata = await self._loaded()
        except BaseException:
            await self.close()
            raise
        self._start_task(self._look_forever(), self._tasks)

    @property
    def num_ready(self) -> int:
        """Replicas that were seen running when Ray Serve was asked last."""
        return self._num_ready

    def cancel(self, ticket: Ticket) -> None:
        """The caller has gone; a stream is ended."""
        super().cancel(ticket)
        for task, tickets in self._working.items():
            if ticket.pieces is not None and ticket in tickets:
                task.cancel()

    async def close(self) -> None:
        """Remove the application now; what still waits is refused."""
        self._is_closed = True
        self._num_ready = 0
        for task in list(self._working):
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._end_tasks()
        await asyncio.to_thread(self._remove)
        self._refuse_all("the server is shutting down")

    # -- the application

    def _deploy(self) -> None:
        require_same_versions()
        resources = self._resources()
        self._depot = ray.remote(ModelDepot).options(num_cpus=0).remote(PackedModel.of(self.source))
        with _serve_calls:
            self._handle = self._run_application(resources)

    def _run_application(self, resources: Mapping[str, Any]) -> Any:
        """Start the replicas without waiting for them; what calls them."""
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(proxy_location="Disabled", logging_config=_QUIET)
        made = serve.deployment(
            name=_DEPLOYMENT,
            num_replicas=self._settings.workers,
            max_ongoing_requests=1,
            ray_actor_options=dict(resources),
            health_check_period_s=_HEALTH_S,
            health_check_timeout_s=max(_HEALTH_S, self._settings.timeout_s),
            graceful_shutdown_timeout_s=_HEALTH_S,
            logging_config=_QUIET,
        )(ModelReplica)
        target = serve.RunTarget(
            made.bind(self._depot, self._replica_settings()), name=self._application, route_prefix=None
        )
        (handle,) = serve.run_many([target], wait_for_applications_running=False)
        return handle

    def _resources(self) -> dict[str, Any]:
        """What a replica takes; InputError if no node can have so much."""
        chosen, has = self._options, cluster_resources()
        wants_gpu = self._settings.device != "cpu" and has.get("GPU", 0) > 0
        cpus = 1.0 if chosen.cpus is None else chosen.cpus
        gpus = float(wants_gpu) if chosen.gpus is None else chosen.gpus
        total = {"CPU": cpus, "GPU": gpus, **chosen.resources}
        for name, amount in total.items():
            if amount * self._settings.workers > has.get(name, 0):
                raise InputError(
                    f"{self._settings.workers} replicas with {amount:g} {name} each do not fit into the Ray cluster, "
                    f"which has {has.get(name, 0):g}. Use fewer workers, or smaller engine options."
                )
        memory = {"memory": chosen.memory_gb * 2**30} if chosen.memory_gb else {}
        return {"num_cpus": cpus, "num_gpus": gpus, "resources": dict(chosen.resources), **memory}

    def _replica_settings(self) -> dict[str, Any]:
        chosen = self._settings
        return {
            "device": chosen.device,
            "model": chosen.name,
            "version": self.version,
            "max_rows": chosen.batch,
            "max_bytes": chosen.max_body_bytes,
            "timeout_s": chosen.timeout_s,
            "application": self._application,
        }

    async def _loaded(self) -> dict[str, Any]:
        """What the model takes and returns, once a replica runs; InputError if it cannot be loaded."""
        outcome: dict[str, Any] = await asyncio.to_thread(ray.get, self._depot.outcome.remote())
        if "error" in outcome:
            raise InputError(f"model {str(self.source)!r} cannot be loaded: {outcome['error']}")
        while not await asyncio.to_thread(self._look):
            await asyncio.sleep(0.05)
        return outcome

    def _look(self) -> int:
        """How many replicas run."""
        with _serve_calls:
            found = serve.status().applications.get(self._application)
        deployment = found and found.deployments.get(_DEPLOYMENT)
        states = deployment.replica_states if deployment else {}
        self._num_ready = sum(count for state, count in states.items() if state == "RUNNING")
        return self._num_ready

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await asyncio.to_thread(self._look)
            except RayError as error:
                logger.error("Ray Serve does not answer: %s", error)
            self._dispatch()

    def _remove(self) -> None:
        handle, depot = self._handle, self._depot
        self._handle = self._depot = None
        if handle is not None:
            with _serve_calls:
                serve.delete(self._application)
        if depot is not None:
            ray.kill(depot)

    # -- requests

    def _dispatch(self) -> None:
        while self._waiting and len(self._working) < self._num_ready and not self._is_closed:
            batch = self._next_batch()
            task = asyncio.get_running_loop().create_task(self._answer(batch))
            self._working[task] = batch
            task.add_done_callback(self._end)

    def _look_for_losses(self) -> None:
        """Nothing is to be found: every call of a replica has a time limit of its own."""

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._working[task]
        self._dispatch()

    def _is_busy(self) -> bool:
        return bool(self._working)

    async def _answer(self, batch: list[Ticket]) -> None:
        """Answer all of a batch, whatever happens to the replica that has it."""
        work = self._infer(batch) if batch[0].pieces is None else self._stream(batch[0])
        try:
            await work
        except TimeoutError:
            self._give_up(batch)
            self._take_tickets_back(batch)
        except RayActorError:
            logger.warning("a replica of version %s ended; Ray Serve starts another one", self.version)
            self._on_death()
            self._num_ready = max(0, self._num_ready - 1)  # until Ray Serve is asked again
            self._take_tickets_back(batch)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises
            logger.error("Ray Serve failed: %s", error)
            _answer_all(batch, unavailable("no replica answers"))
        except asyncio.CancelledError:
            _answer_all(batch, unavailable("the server is shutting down"))
            raise

    async def _infer(self, batch: Sequence[Ticket]) -> None:
        response = self._handle.infer.remote([_item(ticket) for ticket in batch])
        answers = await asyncio.wait_for(response, self._settings.timeout_s)
        for ticket, (status, content_type, headers, body) in zip(batch, answers, strict=True):
            ticket.answer(Reply(status, body, content_type, headers))

    async def _stream(self, ticket: Ticket) -> None:
        response = self._handle.options(stream=True).stream.remote(_item(ticket))
        assert ticket.pieces is not None
        try:
            while isinstance(piece := await asyncio.wait_for(_next(response), self._settings.timeout_s), bytes):
                ticket.has_begun = True
                ticket.pieces.add(piece)
                await ticket.pieces.room()
        except (asyncio.CancelledError, TimeoutError):
            response.cancel()
            raise
        ticket.answer(Reply(*piece))


def _item(ticket: Ticket) -> Item:
    return ticket.codec, dict(ticket.headers), ticket.body


async def _next(response: Any) -> bytes | tuple[int, bytes]:
    """The next piece of a stream; at its end a status and a body."""
    piece: bytes | tuple[int, bytes] = await anext(response)
    return piece


def _answer_all(batch: Sequence[Ticket], reply: Reply) -> None:
    for ticket in batch:
        ticket.answer(reply)
