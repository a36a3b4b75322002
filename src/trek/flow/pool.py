"""The pool: worker processes that fork a process for every function step.

Why processes: a step can be ended with all that it started when its time is over, a crash fails one step and not the
run, and no step finds what another one changed. Why they are forked: starting Python costs tens of milliseconds and
importing torch seconds, a fork about one. Every worker is a gang of one on the engine, so its agent ends it with its
steps however the runner dies.
"""

from __future__ import annotations

import functools
import os
import pickle
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trek.engines import Engine, Exit, Gang, GangSpec
from trek.engines.agent import THREADS
from trek.engines.failure import to_error
from trek.errors import InputError
from trek.flow.artefacts import Stored
from trek.flow.graph import FunctionWork
from trek.flow.packing import pack_arguments, pack_function
from trek.flow.randomness import same_hashes
from trek.flow.tasks import Ended, Mailbox, Task

_GRACE_S = 1.0
_WARM_PACKAGES = ("numpy", "torch")
"""What a warm parent of the engine can have imported already."""


class _Worker:
    def __init__(self, token: str) -> None:
        self.token = token
        self.gang: Gang | None = None
        self.connection: Connection | None = None
        self.task: Task | None = None
        self.known_functions: set[int] = set()
        self.is_ready = False
        """It has imported the libraries, and takes tasks."""
        self.is_dismissed = False


class Pool:
    """Workers on demand, at most `size`. Used by the runner's thread; exits of workers arrive in the mailbox.

    `libraries` are imported by every worker before it forks, as far as it may fork afterwards.
    """

    def __init__(self, engine: Engine, *, size: int, mailbox: Mailbox, libraries: Sequence[str] = ()) -> None:
        self._engine = engine
        self._size = size
        self._libraries = list(libraries)
        self._mailbox = mailbox
        self._workers: dict[str, _Worker] = {}
        self._waiting: deque[Task] = deque()
        self._blobs: dict[int, tuple[Callable[..., Any], bytes]] = {}
        self._closing: list[threading.Thread] = []
        self._folder = Path(tempfile.mkdtemp(prefix="trek-pool-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "socket"))
        self._listener.listen()

    def submit(self, task: Task) -> None:
        """Give the task to an idle worker, to a new one, or to the next that is free."""
        self._waiting.append(task)
        self._feed()

    def waitables(self) -> list[Any]:
        """What becomes readable when the pool needs attention."""
        return [self._listener, *(worker.connection for worker in self._connected())]

    def attend(self, ready: list[Any]) -> Iterator[Ended]:
        """Take in new workers and the answers of busy ones."""
        if self._listener in ready:
            self._accept()
        for worker in self._connected():
            if worker.connection in ready and (ended := self._receive(worker)) is not None:
                yield ended
        self._feed()

    def cancel(self, task: Task) -> None:
        """End the task's worker with all it started; the task reports nothing more."""
        if task in self._waiting:
            self._waiting.remove(task)
        for worker in self._workers.values():
            if worker.task is task:
                self._dismiss(worker)
                return

    def close(self) -> None:
        """End every worker."""
        for worker in list(self._workers.values()):
            self._dismiss(worker)
        for thread in self._closing:
            thread.join()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _connected(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if worker.connection is not None]

    def _feed(self) -> None:
        for worker in self._connected():
            if self._waiting and worker.is_ready and worker.task is None:
                self._send(worker, self._waiting.popleft())
        starting = sum(not worker.is_ready for worker in self._workers.values())
        while len(self._workers) < self._size and starting < len(self._waiting):
            self._start_worker()
            starting += 1

    def _start_worker(self) -> None:
        worker = _Worker(secrets.token_hex(16))
        self._workers[worker.token] = worker
        spec = GangSpec(
            [sys.executable, "-m", "trek.flow.step_worker"],
            1,
            env={
                "TREK_FLOW_SOCKET": str(self._folder / "socket"),
                "TREK_FLOW_TOKEN": worker.token,
                # The libraries of a process that forks must not start threads; a step sets its own number.
                THREADS: "1",
                **same_hashes(os.environ),
            },
            imports=_warm_imports(self._libraries),
        )
        worker.gang = self._engine.start(
            spec, on_exit=lambda exit_: self._mailbox.call(functools.partial(self._lost, worker, exit_))
        )

    def _lost(self, worker: _Worker, exit_: Exit) -> Ended | None:
        """A worker has ended. Unless it was dismissed, its task failed; one that never came up fails a waiting task."""
        if worker.is_dismissed:
            return None
        task = worker.task or (self._waiting.popleft() if not worker.is_ready and self._waiting else None)
        self._dismiss(worker)
        return _died(task, exit_) if task else None

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        connection = Connection(client.detach())
        worker = self._workers.get(connection.recv_bytes().decode())
        if worker is None:
            connection.close()
            return
        worker.connection = connection
        connection.send_bytes(pickle.dumps({"sys_path": sys.path, "libraries": self._libraries}))

    def _send(self, worker: _Worker, task: Task) -> None:
        assert worker.connection is not None
        worker.task = task
        try:
            worker.connection.send_bytes(pickle.dumps(self._request(worker, task)))
            task.start_clock()  # the worker's own start, with all its imports, is not the step's time
        except InputError as error:
            worker.task = None
            self._mailbox.put(Ended(task, error=str(error)))
        except OSError:  # it died idle
            worker.task = None
            self._dismiss(worker)
            self._waiting.appendleft(task)

    def _request(self, worker: _Worker, task: Task) -> dict[str, Any]:
        work = task.step.work
        assert isinstance(work, FunctionWork)
        folder = task.step.settings.cwd
        request = {
            "function_id": id(work.function),
            "arguments": pack_arguments(task),
            "num_outputs": task.step.num_outputs,
            "attempt": str(task.attempt),
            "digest": task.digest,
            "log": str(task.log),
            "seed": task.seed,
            "env": task.env,
            "cwd": str(folder) if folder else None,
        }
        if id(work.function) not in worker.known_functions:
            request["function"] = self._blob(work.function, task.step.name)
            worker.known_functions.add(id(work.function))
        return request

    def _blob(self, function: Callable[..., Any], name: str) -> bytes:
        if id(function) not in self._blobs:  # the function is kept with it, so that its id stays its own
            self._blobs[id(function)] = function, pack_function(function, name)
        return self._blobs[id(function)][1]

    def _receive(self, worker: _Worker) -> Ended | None:
        assert worker.connection is not None
        task = worker.task
        try:
            answer = pickle.loads(worker.connection.recv_bytes())  # noqa: S301 - from the worker that we started
        except (EOFError, OSError):  # it died: `_lost` is called with how
            worker.connection.close()
            worker.connection = None
            return None
        if "unsafe" in answer:
            self._greet(worker, answer["unsafe"])
            return None
        worker.task = None
        assert task is not None
        if "code" in answer:
            return _died(task, Exit(0, socket.gethostname(), answer["pid"], answer["code"]))
        return to_ended(task, answer)

    def _greet(self, worker: _Worker, unsafe: str | None) -> None:
        """The worker has imported the libraries. One that must not fork after that is replaced by one without."""
        worker.is_ready = unsafe is None
        if unsafe is not None:
            package = unsafe.partition(".")[0]
            self._libraries = [name for name in self._libraries if name.partition(".")[0] != package]
            self._dismiss(worker)

    def _dismiss(self, worker: _Worker) -> None:
        """Let an idle worker leave by itself, which it does when its connection closes; stop any other."""
        worker.is_dismissed = True
        self._workers.pop(worker.token, None)
        is_idle = worker.task is None and worker.connection is not None
        if worker.connection is not None:
            worker.connection.close()
        assert worker.gang is not None
        thread = threading.Thread(
            target=_end_gang, args=(worker.gang, 5.0 if is_idle else 0.0), name="trek-flow-retire"
        )
        thread.start()
        self._closing.append(thread)


def _end_gang(gang: Gang, patience_s: float) -> None:
    gang.wait(patience_s)
    gang.stop(grace_s=_GRACE_S)


def _warm_imports(libraries: Sequence[str]) -> list[str]:
    """What a warm parent imports for a worker; nothing without torch, since the rest is imported quickly."""
    found = [name for name in libraries if name.partition(".")[0] in _WARM_PACKAGES]
    return found if any(name.partition(".")[0] == "torch" for name in found) else []


def _died(task: Task, exit_: Exit) -> Ended:
    why = str(to_error(exit_, num_workers=1)).partition("(pid")[2].rstrip(".")
    return Ended(task, error=f"its process (pid{why}")


def to_ended(task: Task, answer: dict[str, Any]) -> Ended:
    """What a worker answered, as the loop knows it."""
    if "error" in answer:
        is_outside = answer.get("is_outside", False)
        return Ended(task, error=answer["error"], traceback=answer["traceback"], is_outside=is_outside)
    return Ended(task, outputs=tuple(Stored.from_json(one) for one in answer["outputs"]))
