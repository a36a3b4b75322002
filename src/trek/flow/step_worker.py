"""A worker process: takes steps from the runner over a socket, and forks a process for each of them.

A step gets a process of its own, so nothing that it changes (modules, generators, threads, variables, signals, the
working directory) reaches another step; what it leaves running is ended with it. This process runs no code of the
user: it only imports the libraries that the steps' modules import, so that a fork has them at no cost, and must have
one thread.

The socket is in a folder that only this user may enter, and what arrives was sent by the runner that started this
process: the only pickles loaded here are our own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from trek.engines.agent import become_subreaper, descendants, signal_all
from trek.engines.warm.child import ThreadSetters
from trek.flow.artefacts import KINDS
from trek.flow.artefacts.classes import give_classes
from trek.flow.performing import full_disk, perform
from trek.flow.randomness import seed_generators
from trek.system.disk import is_disk_full

_LEFTOVER_GRACE_S = 1.0
_LEFTOVER_POLL_S = 0.005
_HARMLESS_THREADS = ("jemalloc_bg_thd",)
"""The allocator of Arrow, which takes care of forks itself."""


class StepWorker:
    """Performs one request after the other, each in a fork of this process."""

    def __init__(self) -> None:
        self._child: int | None = None
        self._is_stopping = False
        self._functions: dict[int, bytes] = {}
        self._threads = ThreadSetters()
        become_subreaper()
        signal.signal(signal.SIGTERM, self._stop)

    def serve(self, connection: Connection) -> None:
        """Perform requests until the connection closes."""
        hello = pickle.loads(connection.recv_bytes())  # noqa: S301 - see the module's docstring
        sys.path[:] = hello["sys_path"]
        unsafe = import_libraries(hello["libraries"])
        connection.send_bytes(pickle.dumps({"unsafe": unsafe}))
        self._threads.find()
        for name in KINDS.in_order():  # finds the kinds of other packages now, and not in every step
            KINDS.load(name)
        gc.collect()
        gc.freeze()  # what is frozen is not looked through by the collector, so its pages stay shared with the forks
        while not self._is_stopping:
            try:
                request = pickle.loads(connection.recv_bytes())  # noqa: S301
            except (EOFError, ConnectionResetError):
                return
            if "function" in request:
                self._functions[request["function_id"]] = request["function"]
            connection.send_bytes(self._perform(request, connection))

    def _perform(self, request: dict[str, Any], connection: Connection) -> bytes:
        answer = os.memfd_create("trek-flow-answer")
        with os.fdopen(answer, "w+b") as file:
            self._child = os.fork()
            if self._child == 0:
                connection.close()
                self._become_step(request, answer)
            _, status = os.waitpid(self._child, 0)
            pid, self._child = self._child, None
            _end_leftovers()
            file.seek(0)
            code = os.waitstatus_to_exitcode(status)
            return file.read() or pickle.dumps({"pid": pid, "code": code})

    def _become_step(self, request: dict[str, Any], answer: int) -> NoReturn:
        """The process of the step: its surroundings, its work, its answer, its end. Threads it started end with it."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setpgid(0, 0)
            _log_into(request["log"])
            os.environ.update(request["env"])
            self._threads.use(dict(os.environ))
            if request["cwd"] is not None:
                os.chdir(request["cwd"])
            seed_generators(request["seed"])
            given = _answer(request, self._functions[request["function_id"]])
        except BaseException as error:  # noqa: BLE001 - nothing may return into the worker's loop
            given = cannot_start(error, Path(request["attempt"]))
        try:
            _write_all(answer, pickle.dumps(given))
            _leave(request["log"])
        finally:
            os._exit(1)

    def _stop(self, *_: Any) -> None:
        self._is_stopping = True
        if self._child is None:
            sys.exit(0)
        signal_all([self._child], signal.SIGTERM)


def cannot_start(error: BaseException, attempt: Path) -> dict[str, Any]:
    """The answer of a process that did not come to its step."""
    if isinstance(error, Exception) and is_disk_full(error):
        return full_disk(error, attempt)
    return {"error": f"the step cannot be started: {type(error).__name__}: {error}", "traceback": ""}


def import_libraries(names: Sequence[str]) -> str | None:
    """Import the libraries; the name of the first after whose import this process must not fork, if there is one."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - the step that needs it imports it again, and reports this
            continue
        if _has_threads() or _has_cuda():
            return name
    return None


def _has_threads() -> bool:
    names = [Path(f"/proc/self/task/{one}/comm").read_text().strip() for one in os.listdir("/proc/self/task")]  # noqa: PTH208
    return len([name for name in names if name not in _HARMLESS_THREADS]) > 1


def _has_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _answer(request: dict[str, Any], function: bytes) -> dict[str, Any]:
    try:
        called = pickle.loads(function)  # noqa: S301
        args, kwargs, classes = pickle.loads(request["arguments"])  # noqa: S301
        give_classes(classes)
    except Exception as error:  # noqa: BLE001 - importing the user's modules may raise anything
        return {"error": f"the step cannot be loaded: {type(error).__name__}: {error}", "traceback": ""}
    return perform(
        called,
        args,
        kwargs,
        num_outputs=request["num_outputs"],
        attempt=Path(request["attempt"]),
        digest=request["digest"],
    )


def _log_into(log: str) -> None:
    """What the step and its children print goes into its log."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _leave(log: str) -> NoReturn:
    """End as a process does, with its exit functions; an empty log is removed."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fstat(1).st_size == 0:
        Path(log).unlink(missing_ok=True)
    os._exit(0)


def _end_leftovers() -> None:
    """End the processes that a step left running: they were given to this process when the step ended."""
    deadline = None
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if deadline is None:
            deadline = time.monotonic() + _LEFTOVER_GRACE_S
            signal_all(descendants(), signal.SIGTERM)
        elif time.monotonic() > deadline:
            signal_all(descendants(), signal.SIGKILL)
        time.sleep(_LEFTOVER_POLL_S)


def main() -> None:
    """Connect to the runner and serve it."""
    address, token = os.environ.pop("TREK_FLOW_SOCKET"), os.environ.pop("TREK_FLOW_TOKEN")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        with Connection(client.detach()) as connection:
            connection.send_bytes(token.encode())
            StepWorker().serve(connection)


if __name__ == "__main__":
    main()
