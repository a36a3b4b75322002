"""ServiceSteps: commands that keep running while later steps use them, and after the run if they are detached.

A detached service is a gang that outlives the run; its handle is stored, and a later run or `trek flow stop`
attaches to it. A service is ready when its address answers.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from filelock import FileLock, Timeout

from trek.engines import Engine, Gang, LogLine
from trek.engines.failure import to_error
from trek.engines.handle_file import attach_by_file, write_handle
from trek.errors import InputError, TrekError
from trek.flow.artefacts import Stored, store_value
from trek.flow.flow_reader import file_name
from trek.flow.gangs import GRACE_S, start_gang, to_spec
from trek.flow.graph import ServiceWork
from trek.flow.tasks import Ended, Mailbox, Task

_POLL_S = 0.1
_ANSWER_TIMEOUT_S = 2.0
_CLAIM_TIMEOUT_S = 30.0
HANDLE = "gang.json"
"""In the folder of a detached service: how its gang is found again."""


@dataclass(eq=False)
class _Service:
    task: Task
    folder: Path | None
    """Its own files, where it is detached."""
    is_ready: bool = False
    is_unwanted: bool = False
    is_left: bool = False


class ServiceSteps:
    """Starts services and keeps them. A task ends when its service answers, and again should the service end early.

    One thread per service does all its work; other threads only set its flags.
    """

    def __init__(self, engine: Engine, *, mailbox: Mailbox, folder: Path) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._folder = folder
        self._services: dict[Task, _Service] = {}
        self._threads: list[threading.Thread] = []

    def submit(self, task: Task) -> None:
        """Start the task's service, or find that it still runs."""
        assert isinstance(task.step.work, ServiceWork)
        task.start_clock()
        folder = self._folder / file_name(task.step.name) if task.step.work.is_detached else None
        service = self._services[task] = _Service(task, folder)
        thread = threading.Thread(target=self._serve, args=(service,), name=f"trek-flow-{task.step.name}")
        self._threads.append(thread)
        thread.start()

    def cancel(self, task: Task) -> None:
        """End the task's service, without a further message."""
        self._services[task].is_unwanted = True

    def close(self) -> None:
        """End every service that was not meant to stay, and wait for that."""
        for service in self._services.values():
            service.is_left = service.is_ready and service.folder is not None
            service.is_unwanted = not service.is_left
        for thread in self._threads:
            thread.join()

    def _serve(self, service: _Service) -> None:
        task = service.task
        try:
            address = parse_address(task.values["ready"])
            with _claimed(service):
                gang = None if self._still_runs(service, address) else self._start(service, address)
                self._await_answer(service, gang, address)
            if gang is not None:
                self._stay(service, gang)
        except (TrekError, OSError) as error:
            if not service.is_unwanted:
                self._mailbox.put(Ended(task, error=str(error).rstrip(".")))

    def _still_runs(self, service: _Service, address: str) -> bool:
        """Whether the detached service runs as specified; one that does not is ended."""
        if service.folder is None or not service.folder.exists():
            return False
        key = service.folder / "key"
        is_same = key.exists() and key.read_text() == service.task.key
        if is_same and is_alive(service.folder) and does_answer(address):
            return True
        stop_service(service.folder)
        return False

    def _start(self, service: _Service, address: str) -> Gang:
        if does_answer(address):
            raise InputError(f"another program already answers at {address}. Stop it, or choose another port.")
        spec = to_spec(service.task)
        if service.folder is None:
            return start_gang(self._engine, service.task, spec)
        service.folder.mkdir(parents=True)
        (service.folder / "key").write_text(service.task.key)
        spec = replace(spec, output_dir=service.folder)
        write_handle(service.folder / HANDLE, spec, engine=self._engine)
        return self._engine.start(spec)

    def _await_answer(self, service: _Service, gang: Gang | None, address: str) -> None:
        while gang is not None and not service.is_unwanted and not does_answer(address):
            if (exits := gang.wait(_POLL_S)) is not None:
                gang.stop(grace_s=GRACE_S)
                raise (
                    to_error(exits[0], num_workers=1)
                    if exits[0].code
                    else InputError("it ended before it answered at its address.")
                )
        if not service.is_unwanted:
            service.is_ready = True
            self._mailbox.put(Ended(service.task, outputs=(_store_url(service.task, address),)))

    def _stay(self, service: _Service, gang: Gang) -> None:
        """Until the service ends, or is no longer wanted, or is left alone."""
        while gang.wait(_POLL_S) is None:
            if service.is_left:
                gang.detach()
                return
            if service.is_unwanted:
                break
        gang.stop(grace_s=GRACE_S)
        if not service.is_unwanted:
            self._mailbox.put(Ended(service.task, error="it ended while steps needed it"))


@contextlib.contextmanager
def _claimed(service: _Service) -> Iterator[None]:
    """No other run of the flow looks for or starts the same detached service meanwhile."""
    if service.folder is None:
        yield
        return
    service.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(service.folder.with_name(f".{service.folder.name}.lock"), timeout=_CLAIM_TIMEOUT_S):
            yield
    except Timeout:
        raise InputError("another run of the flow is starting it. Wait for that run.") from None


def parse_address(ready: Any) -> str:
    """A port or a URL as a URL."""
    if isinstance(ready, int) or str(ready).isdigit():
        ready = f"tcp://127.0.0.1:{ready}"
    try:
        parts = urlsplit(str(ready))
        is_address = parts.scheme in ("http", "https", "tcp") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or none that exists
        is_address = False
    if not is_address:
        raise InputError(f"ready must be a port or a URL such as http://127.0.0.1:8080/health, got {ready!r}.")
    return str(ready)


def does_answer(address: str) -> bool:
    """Whether something listens there, and for http whether it is content."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "tcp":
            socket.create_connection((parts.hostname, parts.port or 0), timeout=_ANSWER_TIMEOUT_S).close()
            return True
        return httpx.get(address, timeout=_ANSWER_TIMEOUT_S, trust_env=False).status_code < 400
    except (OSError, httpx.HTTPError):
        return False


def running_services(folder: Path) -> list[str]:
    """Names of the detached services in a flow's `folder` of services that still run."""
    return sorted(path.name for path in folder.glob("[!.]*") if is_alive(path))


def is_alive(folder: Path) -> bool:
    """Whether the service of this folder still runs."""
    gang = _find(folder)
    if gang is None:
        return False
    is_running = bool(gang.pids)
    gang.detach()
    return is_running


def stop_service(folder: Path) -> None:
    """End the service of this folder, if it runs, and forget it."""
    gang = _find(folder)
    if gang is not None:
        gang.stop(grace_s=GRACE_S)
    shutil.rmtree(folder)


def read_service_log(folder: Path) -> str | None:
    """What the detached service of this folder printed; None if there is no such service."""
    gang = _find(folder)
    if gang is None:
        return None
    lines: list[LogLine] = []
    while more := gang.read_log(0, lines[-1].end if lines else 0):
        lines += more
    gang.detach()
    return "".join(f"{line.text}\n" for line in lines)


def _find(folder: Path) -> Gang | None:
    try:
        return attach_by_file(folder / HANDLE)
    except InputError:
        return None


def _store_url(task: Task, address: str) -> Stored:
    parts = urlsplit(address)
    scheme = "http" if parts.scheme == "tcp" else parts.scheme
    return store_value(f"{scheme}://{parts.netloc}", task.attempt / "output_0")
