"""A complete control plane in this process: store, supervisor, services and HTTP, from start to shutdown."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout

from trek._version import __version__
from trek.client.models import ENDED
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.trials.supervisor import Supervisor
from trek.engines import open_engine
from trek.errors import InputError, OutsideError, PortInUse, StorageError
from trek.master.app import make_app
from trek.master.connection_guard import MAX_IDLE
from trek.master.http_server import HttpServer, allow_many_files, server_config
from trek.master.prefix import UnderPrefix
from trek.world.addresses import is_loopback
from trek.world.clock import Clock, SystemClock

STOP_GRACE_S = 30.0
KILL_GRACE_S = 2.0


@dataclass(frozen=True)
class MasterSettings:
    """How to run. Port 0 takes any free port; with `idle_s` None it never ends by itself."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 0
    database: str | None = None
    prefix: str = ""
    """The path under which a proxy serves it, such as /trek."""
    idle_s: float | None = None
    slots: int | None = None
    engine: str = "local"
    """The name of the Engine that trials run on."""
    patience_s: float = 0.0
    """How long to wait for a control plane of the same home that is shutting down."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is believed; by default none is, loopback neither."""


class ControlPlane:
    """See the module. `serve` blocks until `stop` is called, from any thread, or until it was idle for too long."""

    def __init__(
        self,
        settings: MasterSettings,
        *,
        on_ready: Callable[[str], None] = lambda url: None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._clock = clock or SystemClock()
        self._layout = Layout(settings.home)
        self._token = secrets.token_urlsafe(32)
        self._last_request_s = self._clock.monotonic_s()
        self._kill = False
        self._is_stopping = threading.Event()

    def serve(self) -> None:
        """Run until stopped. Only one control plane at a time may use a home."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        _collect_less_garbage()
        self._max_files = allow_many_files()
        with (
            _own(self._settings.home, patience_s=self._settings.patience_s),
            contextlib.closing(self._open_store()) as store,
        ):
            listener = _listen(self._settings.host, self._settings.port)
            with listener:
                self._url = f"http://{_shown_host(self._settings.host)}:{listener.getsockname()[1]}"
                self._run(store, listener)

    def stop(self, kill: bool = False) -> None:
        """Shut down soon; with `kill`, end all experiments first."""
        self._kill = self._kill or kill
        self._is_stopping.set()

    def _open_store(self) -> Store:
        return Store(self._settings.database) if self._settings.database else Store.at(self._settings.home)

    def _run(self, store: Store, listener: socket.socket) -> None:
        engine = open_engine(self._settings.engine)
        supervisor = Supervisor(
            store,
            layout=self._layout,
            engine=engine,
            slots=self._settings.slots or engine.slots(),
            environment=lambda trial_id, run: self._environment(services, trial_id, run),
            clock=self._clock,
            has_gpus=engine.num_gpus() > 0,
        )
        services = Services.over(store, layout=self._layout, runner=supervisor, clock=self._clock)
        self._check_reach(services)
        app = make_app(
            services,
            token=self._token,
            stop=self.stop,
            is_stopping=self._is_stopping.is_set,
            on_request=self._notice,
            clock=self._clock,
        )
        served = UnderPrefix(app, prefix=self._settings.prefix)
        config = server_config(served, trusted_proxies=self._settings.trusted_proxies)
        server = HttpServer(config, clock=self._clock, max_idle=min(MAX_IDLE, self._max_files // 3))
        is_background = self._settings.idle_s is not None
        address = {"url": self._url, "token": self._token, "is_background": is_background}
        with _address_file(self._layout.address_file, address):
            supervisor.start()
            watcher = threading.Thread(target=self._watch, args=(services, supervisor, server), name="trek-watch")
            watcher.start()
            try:
                self._on_ready(self._url)
                server.run(sockets=[listener])
            finally:
                self.stop()
                watcher.join()

    def _watch(self, services: Services, supervisor: Supervisor, server: uvicorn.Server) -> None:
        """Wait until told to stop or idle for too long; then end the trials while they can still report."""
        while not self._is_stopping.wait(0.5) and not self._is_idle(services):
            pass
        # Commands must not be sent to a control plane that is shutting down; from now on they start the next one.
        self._layout.address_file.unlink(missing_ok=True)
        try:
            if self._kill:
                for experiment in services.experiments.all():
                    if experiment.state not in ENDED:
                        services.experiments.kill(experiment.id)
            supervisor.stop(grace_s=KILL_GRACE_S if self._kill else STOP_GRACE_S)
        finally:
            server.should_exit = True

    def _is_idle(self, services: Services) -> bool:
        quiet_s, idle_s = self._clock.monotonic_s() - self._last_request_s, self._settings.idle_s
        return idle_s is not None and quiet_s > idle_s and services.cluster.num_active() == 0

    def _check_reach(self, services: Services) -> None:
        if not is_loopback(self._settings.host) and not services.accounts.has_users:
            first = (
                "Start it on 127.0.0.1 with the same --db first, and add one" if self._settings.database else "Add one"
            )
            raise InputError(
                f"a master on {self._settings.host} is reachable from other machines, so it needs users. {first} with "
                "`trek user create NAME --role admin`, or listen on 127.0.0.1."
            )

    def _environment(self, services: Services, trial_id: int, run: int) -> dict[str, str]:
        return {
            "TREK_MASTER": self._url,
            "TREK_TOKEN": services.accounts.trial_token(trial_id, run),
            "TREK_ADDRESS_FILE": str(self._layout.address_file),
        }

    def _notice(self) -> None:
        self._last_request_s = self._clock.monotonic_s()


def _collect_less_garbage() -> None:
    """Metric rows are thousands of objects without cycles; scanning them takes a fifth of the time to store them."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def _own(home: Path, *, patience_s: float) -> Iterator[None]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = FileLock(home / "control.lock")
        lock.acquire(timeout=patience_s, poll_interval=0.05)
    except Timeout:
        raise InputError(
            f"a control plane is already running for {str(home)!r}. Use it, stop it with `trek cluster stop`, "
            "or set another TREK_HOME."
        ) from None
    except OSError as error:
        raise StorageError(f"cannot write to the folder {str(home)!r}: {error.strerror}. Set TREK_HOME.") from error
    with lock:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it, an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno in (98, 48):
            raise PortInUse(f"port {port} on {host} is in use by another program. Choose another --port.") from error
        raise OutsideError(f"cannot listen on {host}:{port}: {error.strerror}. Check --host and --port.") from error
    return listener


def _shown_host(host: str) -> str:
    """An address that a client on this machine can use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - it is compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _address_file(path: Path, address: Mapping[str, object]) -> Iterator[None]:
    """Publish the address, readable by the owner of the home only; remove it when the block ends."""
    partial = path.with_suffix(".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({**address, "pid": os.getpid(), "version": __version__}, file)
    partial.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
