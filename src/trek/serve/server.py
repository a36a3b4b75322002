"""Server: a model behind HTTP. Owns the front process: its event loop, its socket, and the workers' life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from trek.distribution import package_missing
from trek.errors import InputError
from trek.listening.connection_guard import MAX_IDLE
from trek.listening.http_server import HttpServer, allow_many_files, listen, server_config
from trek.serve.access_log import AccessLog
from trek.serve.inference_app import InferenceApp
from trek.serve.model_api import Readiness, make_api
from trek.serve.model_source import ModelSource
from trek.serve.model_versions import ModelVersions, VersionPlan
from trek.serve.serving_metrics import ServingMetrics
from trek.serve.settings import ServeSettings
from trek.system.clock import SystemClock
from trek.world.addresses import is_loopback

T = TypeVar("T")
logger = logging.getLogger(__name__)
_GRACE_S = 30
"""How long open requests may take when the server is asked to end."""


class Server:
    """Serves a model: with `run` in this thread until a signal, or in a `with` block in a thread of its own.

    `model` is a checkpoint, its folder or URL, an archive, or `module:function`; a dict of these serves several
    versions, with a share of the requests for each in `weights`. Settings are those of `ServeSettings`.
    """

    def __init__(
        self,
        model: Any,
        *,
        weights: Mapping[str, float] | None = None,
        code: Path | str | None = None,
        trial: str = "",
        is_allowed: Callable[[str], Awaitable[bool]] | None = None,
        settings: ServeSettings | None = None,
        **named: Any,
    ) -> None:
        self.settings = settings or ServeSettings(**named)
        self._parse = partial(_finder, code=code, trial=trial)
        given = model if isinstance(model, Mapping) else {"1": model}
        if not given:
            raise InputError("there is no version to serve. Pass a model, or a dict of models by version.")
        unknown = next((version for version in weights or {} if version not in given), None)
        if unknown is not None:
            raise InputError(f"weights name version {unknown!r}, which does not exist. Use one of: {', '.join(given)}.")
        shares = dict.fromkeys(given, 1.0) | dict(weights or {})
        self._plans = {str(name): VersionPlan(self._parse(place), shares[name]) for name, place in given.items()}
        if not is_loopback(self.settings.host) and self.settings.key is None and is_allowed is None:
            raise InputError(
                f"listening on {self.settings.host}, which other machines can reach, requires a key. Set "
                "TREK_SERVE_KEY (key= in Python), or listen on 127.0.0.1."
            )
        self._is_allowed = is_allowed
        self._readiness = Readiness()
        self._metrics = ServingMetrics()
        self._ending: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._versions: ModelVersions | None = None
        self._thread: threading.Thread | None = None
        self._port = self.settings.port
        self._grpc_port = self.settings.grpc_port

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.settings.host}:{self._port}"

    @property
    def grpc_address(self) -> str | None:
        """Where it listens for gRPC; None if it does not."""
        return None if self._grpc_port is None else f"{self.settings.host}:{self._grpc_port}"

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of all workers that hold a model."""
        return [pid for pool in self._loaded.pools.values() for pid in pool.pids]

    def run(self, *, on_ready: Callable[[str], None] = lambda url: None) -> None:
        """Serve until SIGTERM or SIGINT, then answer what was taken and return. SIGHUP loads the models again."""
        allow_many_files()
        asyncio.run(self._serve(lambda: on_ready(self.url), has_signals=True))

    def start(self) -> None:
        """Serve in a thread; returns when requests are answered. InputError if the model cannot be loaded."""
        ready: Future[None] = Future()

        def work() -> None:
            try:
                asyncio.run(self._serve(lambda: ready.set_result(None), has_signals=False))
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._thread = threading.Thread(target=work, name="trek-serve")
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Answer what was taken, and end."""
        if self._loop is not None and self._ending is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # -- changes while it serves, from any thread

    def load(self, model: Any, *, version: str = "1", weight: float = 1.0) -> None:
        """Load a version, new or in the place of one, without a dropped request."""
        self._wait_for(self._loaded.load(version, VersionPlan(self._parse(model), weight)))

    def reload(self, version: str = "1") -> None:
        """Load a version again, from where it is found now."""
        self._wait_for(self._loaded.reload(version))

    def unload(self, version: str) -> None:
        """Answer what a version has been given, then end it."""
        self._wait_for(self._loaded.unload(version))

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the shares of the requests."""

        async def change() -> None:
            self._loaded.set_weights(weights)

        self._wait_for(change())

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise InputError("the server does not run. Call start(), or use it in a `with` block.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def _loaded(self) -> ModelVersions:
        if self._versions is None:
            raise InputError("the server does not run. Call start(), or use it in a `with` block.")
        return self._versions

    # -- the life of the front process

    async def _serve(self, on_ready: Callable[[], None], *, has_signals: bool) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        versions = ModelVersions(self._plans, settings=self.settings, metrics=self._metrics)
        log = AccessLog(self.settings.access_log) if self.settings.access_log else None
        listening = listen(self.settings.host, self.settings.port)
        self._port = listening.getsockname()[1]
        try:
            with _signals(self._loop, self._ending, versions) if has_signals else contextlib.nullcontext():
                await _load_or_end(versions, self._ending)
                if not self._ending.is_set():
                    self._versions = versions
                    async with self._grpc(versions, log):
                        await self._answer(versions, log, listening, on_ready)
        finally:
            self._versions = None
            await versions.close()
            listening.close()
            if log is not None:
                log.close()

    @contextlib.asynccontextmanager
    async def _grpc(self, versions: ModelVersions, log: AccessLog | None) -> AsyncIterator[None]:
        """Serves gRPC in the block, if asked to."""
        if self.settings.grpc_port is None:
            yield
            return
        server = _make_grpc(
            versions,
            settings=self.settings,
            metrics=self._metrics,
            readiness=self._readiness,
            access_log=log,
            is_allowed=self._is_allowed,
        )
        self._grpc_port = await server.start()
        try:
            yield
        finally:
            await server.stop(grace_s=_GRACE_S)

    async def _answer(
        self, versions: ModelVersions, log: AccessLog | None, listening: socket.socket, on_ready: Callable[[], None]
    ) -> None:
        api = make_api(versions, settings=self.settings, metrics=self._metrics, readiness=self._readiness)
        app = InferenceApp(
            versions,
            api,
            settings=self.settings,
            metrics=self._metrics,
            access_log=log,
            is_allowed=self._is_allowed,
        )
        max_idle = min(MAX_IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
        http = HttpServer(
            server_config(app, grace_s=_GRACE_S), clock=SystemClock(), max_idle=max_idle, on_started=on_ready
        )
        serving = asyncio.ensure_future(http.serve(sockets=[listening]))
        assert self._ending is not None
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        self._readiness.is_draining = True
        http.should_exit = True
        ending.cancel()
        await serving


def _make_grpc(*args: Any, **parts: Any) -> Any:
    try:
        from trek.serve.grpc_server import GrpcServer
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("grpc", "google"):
            raise
        raise package_missing("gRPC", "grpcio" if error.name == "grpc" else "protobuf", extra="grpc") from error
    return GrpcServer(*args, **parts)


async def _load_or_end(versions: ModelVersions, ending: asyncio.Event) -> None:
    """Load all versions, unless the server is asked to end meanwhile."""
    loading = asyncio.ensure_future(versions.load_all())
    waiting = asyncio.ensure_future(ending.wait())
    await asyncio.wait([loading, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not loading.done():
        loading.cancel()
        await asyncio.wait([loading])
        return
    loading.result()


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, ending: asyncio.Event, versions: ModelVersions) -> Iterator[None]:
    tasks: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            for version in list(versions.pools):
                await versions.reload(version)
        except InputError as error:
            logger.error("the models are not loaded again: %s", error)

    def begin_reload() -> None:
        task = loop.create_task(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_signal_handler(signal.SIGHUP, begin_reload)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _finder(place: Any, *, code: Path | str | None, trial: str) -> Callable[[], ModelSource]:
    """Where a model is found; a function is asked again with every reload."""
    if callable(place) and not isinstance(place, ModelSource):
        return lambda: ModelSource.parse(place(), code=code, trial=trial)
    found = ModelSource.parse(place, code=code, trial=trial)
    return lambda: found
