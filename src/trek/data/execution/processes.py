"""Processes of this machine: for functions that hold the GIL. Rows travel as Arrow files in shared memory.

A worker is a fresh interpreter that this process speaks to over a pipe, so scripts need no `__main__` guard. Functions
go through the pipe (cloudpickle, between our own processes); arrays and tables never do.
"""

from __future__ import annotations

import io
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from trek.data import tensors
from trek.data.execution.base import Executor, Split, Task, default_memory_limit, join_pieces, require_positive
from trek.data.execution.parallel import run_all
from trek.data.execution.partition_store import SharedStore
from trek.data.execution.parts import FileSegment, MemorySegment, Part, Readable
from trek.errors import OutsideError

_SMALL_BYTES = 1 << 16
_GRACE_S = 5.0


class ProcessExecutor(Executor):
    """Runs partitions in worker processes, which start with the first use and end with `close`."""

    shares_memory = False

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        memory_limit_bytes: int | None = None,
        spill_dir: Path | None = None,
    ) -> None:
        require_positive(num_workers=num_workers, memory_limit_bytes=memory_limit_bytes)
        self.num_workers = num_workers or os.cpu_count() or 1
        self.memory_limit_bytes = memory_limit_bytes or default_memory_limit()
        self.store = SharedStore.create(memory_limit_bytes=self.memory_limit_bytes, spill_dir=spill_dir)
        weakref.finalize(self, self.store.close)  # one that nobody closes leaves no shared memory behind either
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._shared: weakref.WeakKeyDictionary[MemorySegment, Part] = weakref.WeakKeyDictionary()

    @property
    def num_spilled_bytes(self) -> int:
        """Bytes that are on disk now."""
        return self.store.num_spilled_bytes

    def put(self, table: pa.Table) -> Part:
        """Keep a table in shared memory."""
        return _owned(self.store.write(table.to_batches()))

    def map(self, task: Task, *inputs: Sequence[Readable]) -> list[Part]:
        """Run `task` over partition i of every input, for all i at once; keep what each gives."""

        def run(index: int) -> Part:
            part: Part = self._call(run_map, self.store, task, index, [readables[index] for readables in inputs])
            return _owned(part)

        return run_all(run, len(inputs[0]), num_threads=self._start())

    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        """Send every row to the partition that `split` names; rows of lower partitions come first."""

        def run(index: int) -> list[Part]:
            pieces: list[Part] = self._call(run_split, self.store, split, index, parts[index], num_partitions)
            return [_owned(piece) for piece in pieces]

        return join_pieces(run_all(run, len(parts), num_threads=self._start()), num_partitions=num_partitions)

    def close(self) -> None:
        """End the workers and remove everything kept."""
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._idle = queue.SimpleQueue()
        self.store.close()

    def _start(self) -> int:
        with self._lock:
            while len(self._workers) < self.num_workers:
                worker = _Worker(len(self._workers), self.num_workers)
                self._workers.append(worker)
                self._idle.put(worker)
        return self.num_workers

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

    def _replace(self, dead: _Worker) -> _Worker:
        with self._lock:
            number = self._workers.index(dead)
            dead.hang_up()
            self._workers[number] = _Worker(number, self.num_workers)
            return self._workers[number]

    def _pickle(self, content: Any) -> tuple[bytes, list[Part]]:
        stream = io.BytesIO()
        pickler = _SharingPickler(stream, self)
        pickler.dump(content)
        return stream.getvalue(), pickler.kept_alive

    def share(self, segment: MemorySegment) -> Part:
        """The rows of a segment of this process in shared memory, written there once."""
        with self._lock:
            if segment not in self._shared:
                self._shared[segment] = _owned(self.store.write(segment.batches()))
            return self._shared[segment]


class _SharingPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles functions and plans; rows and arrays become references to shared memory."""

    def __init__(self, stream: io.BytesIO, executor: ProcessExecutor) -> None:
        super().__init__(stream)
        self._executor = executor
        self.kept_alive: list[Part] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MemorySegment):
            return _SharedSegments, (self._executor.share(value).segments,)
        if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes > _SMALL_BYTES and value.ndim:
            column = tensors.to_column(value, name="array")
            self.kept_alive.append(self._executor.put(pa.table({"array": column})))
            return _restore_array, (self.kept_alive[-1],)
        return super().reducer_override(value)


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


def run_map(store: SharedStore, task: Task, index: int, inputs: list[Readable]) -> Part:
    """In a worker: what `map` does for one partition."""
    return store.write(task(index, *(readable.batches() for readable in inputs)))


def run_split(store: SharedStore, split: Split, index: int, part: Readable, num_partitions: int) -> list[Part]:
    """In a worker: what `exchange` does for one partition."""
    from trek.data.execution.base import split_into

    return split_into(store, split(index, part.batches()), num_partitions=num_partitions)


def _owned(part: Part) -> Part:
    return Part(tuple(segment.own() if isinstance(segment, FileSegment) else segment for segment in part.segments))


def _restore_array(part: Part) -> np.ndarray:
    return tensors.to_numpy(pa.Table.from_batches(list(part.batches())).column("array"))
