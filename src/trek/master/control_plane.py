"""A complete control plane in this process: store, supervisor, services and HTTP, from start to shutdown."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from filelock import FileLock, Timeout
from sqlalchemy.exc import SQLAlchemyError

from trek._version import __version__
from trek.client.models import ENDED
from trek.control.database_lease import DatabaseLease
from trek.control.experiments.archives import Archives
from trek.control.experiments.named_engine import named_engine
from trek.control.layout import Layout
from trek.control.run_as import RunAs
from trek.control.services import Services
from trek.control.store import Store
from trek.control.trials.log_intake import MAX_LOG_BYTES
from trek.control.trials.private_variables import private_variables, shared_variables
from trek.control.trials.supervisor import Supervisor
from trek.control.trials.trial_user import check_run_as
from trek.engines import open_engine
from trek.errors import InputError, StorageError, TrekError
from trek.listening.connection_guard import MAX_IDLE
from trek.listening.http_server import HttpServer, allow_many_files, listen, server_config
from trek.master.app import make_app
from trek.master.own_file import OwnFile
from trek.master.prefix import UnderPrefix
from trek.master.web_sessions import WebSessions
from trek.system.clock import Clock, SystemClock
from trek.system.home import OTHERS, claim_home
from trek.world.addresses import is_loopback

_LOG = logging.getLogger(__name__)
STOP_GRACE_S = 30.0
KILL_GRACE_S = 2.0
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


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
    engine: str | None = None
    """The name of the Engine that trials run on; by default that of an experiment which has not ended, or `local`."""
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of that Engine."""
    run_as: RunAs | None = None
    """Whom trials run as; None for the user of this process."""
    pass_env: tuple[str, ...] = ()
    """With `run_as`: further variables of this process's environment that trials inherit."""
    max_log_mb: float = MAX_LOG_BYTES / 2**20
    """How many MiB of the log of one trial are stored."""
    patience_s: float = 0.0
    """How long to wait for a control plane of the same home that is shutting down."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is believed; by default none is, loopback neither."""

    @property
    def layout(self) -> Layout:
        """Where its files are."""
        return Layout(self.home, run_as=self.run_as)

    def check(self) -> None:
        """InputError for settings that this machine cannot fulfil."""
        if self.run_as is None and self.pass_env:
            raise InputError(
                f"--pass-env {self.pass_env[0]} is for --run-as: without it, trials inherit the master's environment."
            )
        if self.run_as is not None:
            programs = [Path(sys.executable).resolve(), Path(__file__)]
            check_run_as(self.run_as, layout=self.layout, programs=programs)


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
        self._layout = settings.layout
        self._token = secrets.token_urlsafe(32)
        self._last_request_s = self._clock.monotonic_s()
        self._kill = False
        self._user_umask = 0o022
        self._is_stopping = threading.Event()

    def serve(self) -> None:
        """Run until stopped. Only one control plane at a time may use a home, and a database."""
        self._settings.check()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        _collect_less_garbage()
        self._max_files = allow_many_files()
        # New files of the home are for its owner alone; trials get the user's umask back.
        self._user_umask = os.umask(OTHERS)
        with (
            _own(self._settings.home, patience_s=self._settings.patience_s) as lock_file,
            self._open_lease() as lease,
            contextlib.closing(Store(self._database)) as store,
        ):
            lease.take()
            Archives(store, folder=self._layout.archives, clock=self._clock).check(last_place=lease.last_place)
            listener = listen(self._settings.host, self._settings.port)
            with listener:
                self._url = f"http://{_shown_host(self._settings.host)}:{listener.getsockname()[1]}"
                self._run(store, listener, lock_file=lock_file)

    def stop(self, kill: bool = False) -> None:
        """Shut down soon; with `kill`, end all experiments first."""
        self._kill = self._kill or kill
        self._is_stopping.set()

    @property
    def _database(self) -> str:
        return self._settings.database or Store.url_at(self._settings.home)

    def _open_lease(self) -> DatabaseLease:
        return DatabaseLease(self._database, home=self._settings.home, clock=self._clock, on_lost=self.stop)

    def _run(self, store: Store, listener: socket.socket, *, lock_file: OwnFile) -> None:
        with store.reading() as session:
            name = self._settings.engine or named_engine(session) or "local"
        engine = open_engine(name, self._settings.engine_options)
        trials_url = self._url
        if self._settings.host in ANY_ADDRESS:
            trials_url = f"http://{_shown_host(engine.own_address())}:{listener.getsockname()[1]}"
        supervisor = Supervisor(
            store,
            layout=self._layout,
            engine=engine,
            slots=self._settings.slots,
            environment=lambda trial_id, run: self._environment(services, trial_id, run, url=trials_url),
            clock=self._clock,
            private_variables=private_variables(os.environ),
            shared_variables=shared_variables(os.environ, passed=self._settings.pass_env),
            max_log_bytes=int(self._settings.max_log_mb * 2**20),
        )
        services = Services.over(store, layout=self._layout, runner=supervisor, clock=self._clock)
        self._check_reach(services)
        web = WebSessions(services.accounts, clock=self._clock)
        app = make_app(
            services,
            token=self._token,
            stop=self.stop,
            is_stopping=self._is_stopping.is_set,
            on_request=self._notice,
            web=web,
            clock=self._clock,
        )
        served = UnderPrefix(app, prefix=self._settings.prefix)
        config = server_config(served, trusted_proxies=self._settings.trusted_proxies)
        server = HttpServer(config, clock=self._clock, max_idle=min(MAX_IDLE, self._max_files // 3))
        is_background = self._settings.idle_s is not None
        address = {"url": self._url, "token": self._token, "is_background": is_background}
        with _address_file(self._layout.address_file, address) as address_file:
            supervisor.start()

            def watch() -> None:
                self._watch(services, supervisor, server, web, lock_file=lock_file, address_file=address_file)

            watcher = threading.Thread(target=watch, name="trek-watch")
            watcher.start()
            try:
                self._on_ready(self._url)
                server.run(sockets=[listener])
            finally:
                self.stop()
                watcher.join()

    def _watch(
        self,
        services: Services,
        supervisor: Supervisor,
        server: uvicorn.Server,
        web: WebSessions,
        *,
        lock_file: OwnFile,
        address_file: OwnFile,
    ) -> None:
        """Wait until told to stop, idle for too long or homeless; then end the trials while they can still report."""
        while not self._is_stopping.wait(0.5) and lock_file.is_there and not self._is_idle(services, web):
            pass
        # Commands must not be sent to a control plane that is shutting down; from now on they start the next one.
        address_file.remove()
        has_home = lock_file.is_there
        try:
            if not has_home:
                _LOG.error("the folder %s was removed or replaced; the control plane ends.", self._settings.home)
            elif self._kill:
                for experiment in services.experiments.all():
                    if experiment.state not in ENDED:
                        services.experiments.kill(experiment.id)
            supervisor.stop(grace_s=KILL_GRACE_S if self._kill or not has_home else STOP_GRACE_S)
        except (TrekError, SQLAlchemyError, OSError):
            if has_home:
                raise
            _LOG.warning("the ends of trials cannot be stored without the home", exc_info=True)
        finally:
            server.should_exit = True

    def _is_idle(self, services: Services, web: WebSessions) -> bool:
        quiet_s, idle_s = self._clock.monotonic_s() - self._last_request_s, self._settings.idle_s
        is_quiet = idle_s is not None and quiet_s > idle_s and not web.has_links
        return is_quiet and services.cluster.num_active() == 0

    def _check_reach(self, services: Services) -> None:
        if not is_loopback(self._settings.host) and not services.accounts.has_users:
            first = (
                "Start it on 127.0.0.1 with the same --db first, and add one" if self._settings.database else "Add one"
            )
            raise InputError(
                f"a master on {self._settings.host} is reachable from other machines, so it needs users. {first} with "
                "`trek user create NAME --role admin`, or listen on 127.0.0.1."
            )

    def _environment(self, services: Services, trial_id: int, run: int, *, url: str) -> dict[str, str]:
        return {
            "TREK_MASTER": url,
            "TREK_TOKEN": services.accounts.trial_token(trial_id, run),
            "TREK_UMASK": f"{self._user_umask:03o}",
        }

    def _notice(self) -> None:
        self._last_request_s = self._clock.monotonic_s()


def _collect_less_garbage() -> None:
    """Metric rows are thousands of objects without cycles; scanning them takes a fifth of the time to store them."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def _own(home: Path, *, patience_s: float) -> Iterator[OwnFile]:
    claim_home(home)
    try:
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
        yield OwnFile.of(home / "control.lock")


def _shown_host(host: str) -> str:
    """An address that a client on this machine can use."""
    if host in ANY_ADDRESS:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _address_file(path: Path, address: Mapping[str, object]) -> Iterator[OwnFile]:
    """Publish the address, readable by the owner of the home only; remove it when the block ends."""
    partial = path.with_suffix(".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({**address, "pid": os.getpid(), "version": __version__}, file)
        file.flush()
        own = OwnFile.of(partial).renamed(path)
        try:
            yield own  # with the file open, so that no other file gets its number
        finally:
            own.remove()
