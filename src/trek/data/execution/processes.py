"""Processes of this machine: for functions that hold the GIL. Rows travel as Arrow files in shared memory.

A worker is a fresh interpreter that this process speaks to over a pipe, so scripts need no `__main__` guard. Functions
go through the pipe (cloudpickle, between our own processes); arrays and tables never do.
"""

from __future__ import annotations

import io
import pickle
import queue
import subprocess
import sys
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.execution.base import travels_once
from trek.data.execution.local import LocalExecutor
from trek.data.execution.partition_store import SharedStore
from trek.data.execution.parts import FileSegment, MemorySegment, Part
from trek.errors import InputError, OutsideError

_SMALL_BYTES = 1 << 16
_GRACE_S = 5.0


class ProcessExecutor(LocalExecutor):
    """Runs partitions in worker processes, which start with the first use and end with `close`."""

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        memory_limit_bytes: int | None = None,
        spill_dir: Path | None = None,
    ) -> None:
        super().__init__(num_workers, memory_limit_bytes=memory_limit_bytes, spill_dir=spill_dir)
        self.store = SharedStore.create(memory_limit_bytes=self.memory_limit_bytes, spill_dir=spill_dir)
        weakref.finalize(self, self.store.close)  # one that nobody closes leaves no shared memory behind either
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._shared: weakref.WeakKeyDictionary[MemorySegment, Part] = weakref.WeakKeyDictionary()
        self._sending = threading.RLock()  # what is sent may hold something else that is
        self._sent: weakref.WeakKeyDictionary[Any, _Sent] = weakref.WeakKeyDictionary()

    def close(self) -> None:
        """End the workers and remove everything kept."""
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._idle = queue.SimpleQueue()
        super().close()

    def _run_all(self, run: Callable[[int], Any], count: int) -> list[Any]:
        self._start()
        return super()._run_all(run, count)

    def _start(self) -> None:
        with self._lock:
            while len(self._workers) < self.num_workers:
                worker = _Worker(len(self._workers), self.num_workers)
                self._workers.append(worker)
                self._idle.put(worker)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        message, kept_alive = self._pickle((function, arguments))
        worker = self._idle.get()
        try:
            answer = worker.ask(message)
        except OutsideError:
            worker = self._replace(worker)
            raise
        finally:
            self._idle.put(worker)
        del kept_alive
        if answer[0] == "failed":
            raise answer[1]
        return answer[1]

    def _owned(self, part: Part) -> Part:
        return Part(tuple(segment.own() if isinstance(segment, FileSegment) else segment for segment in part.segments))

    def _replace(self, dead: _Worker) -> _Worker:
        with self._lock:
            number = self._workers.index(dead)
            dead.hang_up()
            self._workers[number] = _Worker(number, self.num_workers)
            return self._workers[number]

    def _pickle(self, content: Any, *, root: Any = None) -> tuple[bytes, list[Part]]:
        stream = io.BytesIO()
        pickler = _SharingPickler(stream, self, root=root)
        try:
            pickler.dump(content)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            culprit = find_culprit(content)
            raise InputError(
                f"{culprit or 'the work'} cannot be sent to a worker process: {error}. Use values and functions that "
                "can be pickled, or run it on threads."
            ) from error
        return stream.getvalue(), pickler.kept_alive

    def send_once(self, value: Any) -> _Sent:
        """`value` in shared memory, pickled the first time it is asked for."""
        with self._sending:
            if value not in self._sent:
                content, kept_alive = self._pickle(value, root=value)
                batch = pa.record_batch({"content": pa.array([content], pa.large_binary())})
                part = self._owned(self.store.write([batch]))
                self._sent[value] = _Sent(uuid.uuid4().hex, part, kept_alive)
            return self._sent[value]

    def share(self, segment: MemorySegment) -> Part:
        """The rows of a segment of this process in shared memory, written there once."""
        with self._lock:
            if segment not in self._shared:
                self._shared[segment] = self._owned(self.store.write(segment.batches()))
            return self._shared[segment]


class _SharingPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles functions and plans; rows and arrays become references to shared memory."""

    def __init__(self, stream: io.BytesIO, executor: ProcessExecutor, *, root: Any) -> None:
        super().__init__(stream)
        self._executor = executor
        self._root = root
        self.kept_alive: list[Part] = []

    def reducer_override(self, value: Any) -> Any:
        if travels_once(value) and value is not self._root:
            sent = self._executor.send_once(value)
            return _receive, (sent.name, sent.part)
        if isinstance(value, MemorySegment):
            return _SharedSegments, (self._executor.share(value).segments,)
        if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes > _SMALL_BYTES and value.ndim:
            column = tensors.to_column(value, name="array")
            self.kept_alive.append(self._executor.put(pa.table({"array": column})))
            return _restore_array, (self.kept_alive[-1],)
        return super().reducer_override(value)


@dataclass(frozen=True)
class _Sent:
    """What every worker reads once: by a name under which it is kept there."""

    name: str
    part: Part
    kept_alive: list[Part]


_received: OrderedDict[str, Any] = OrderedDict()
_NUM_RECEIVED = 16


def _receive(name: str, part: Part) -> Any:
    """In a worker: what was sent by this name."""
    if name not in _received:
        (content,) = next(iter(part.batches())).column("content").to_pylist()
        _received[name] = cloudpickle.loads(content)
        if len(_received) > _NUM_RECEIVED:
            _received.popitem(last=False)
    return _received[name]


def find_culprit(content: Any) -> str | None:
    """The step of a plan that cannot be pickled, by the name that `explain` gives it."""
    if hasattr(content, "describe"):  # what travels once is pickled by itself
        return str(content.describe())
    function, arguments = content if isinstance(content, tuple) and len(content) == 2 else (content, ())
    for piece in _pieces_in([function, arguments]):
        try:
            cloudpickle.dumps(piece.step)
        except Exception:  # noqa: BLE001 - whatever its parts raise
            return str(piece.context.name)
    return None


def _pieces_in(value: Any) -> Iterator[Any]:
    """The steps of the partitions that a call is about, first to last."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _pieces_in(item)
    elif hasattr(value, "step") and hasattr(value, "context"):
        yield from _pieces_in(value.origin)
        yield value


class _SharedSegments(MemorySegment):
    """In a worker: the segments that stand for one of the starting process."""

    def __init__(self, segments: tuple[FileSegment, ...]) -> None:
        super().__init__([batch for segment in segments for batch in segment.batches()])


class _Worker:
    """A worker process and the pipe to it. Used by one thread at a time."""

    def __init__(self, number: int, num_workers: int) -> None:
        self._pipe, far_end = Pipe()
        arguments = [str(far_end.fileno()), str(number), str(num_workers)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trek.data.execution.executor_worker", *arguments],
            pass_fds=[far_end.fileno()],
            stdin=subprocess.DEVNULL,
        )
        far_end.close()
        self._send(cloudpickle.dumps(sys.path))

    def ask(self, message: bytes) -> tuple[str, Any]:
        """Have the worker run a pickled call; "done" and its result, or "failed" and the exception."""
        try:
            self._send(message)
            answer: tuple[str, Any] = cloudpickle.loads(self._pipe.recv_bytes())
            return answer
        except (EOFError, OSError) as error:
            code = self._process.wait()
            raise OutsideError(
                f"a data worker died with exit code {code}"
                + (" (killed: probably out of memory; use fewer workers or more partitions)." if code == -9 else ".")
            ) from error

    def hang_up(self) -> None:
        """Close the pipe, which ends the worker once it is idle."""
        self._pipe.close()

    def end(self) -> None:
        """Wait for the worker to end; force it when it does not."""
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, message: bytes) -> None:
        self._pipe.send_bytes(message)


def _restore_array(part: Part) -> np.ndarray:
    return tensors.to_numpy(pa.Table.from_batches(list(part.batches())).column("array"))
