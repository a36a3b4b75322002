"""Rows and functions as objects of Ray's store: written once, read by any node, spilled to disk and made again by Ray.

Rows are Arrow IPC streams, read in tasks without a copy. What this process reads is copied out of the store, so that it
outlives the connection. A call is pickled (cloudpickle, between our own processes) without its rows and arrays, which
are references to objects and become arguments of the task, so that Ray runs it where they are.
"""

from __future__ import annotations

import io
import pickle
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import ray

from trek.data.execution.base import travels_once
from trek.data.execution.parts import MemorySegment, Segment
from trek.data.execution.processes import find_culprit
from trek.errors import InputError

SEGMENT_BYTES = 32 << 20
"""About how much one object holds: a worker keeps no more than this of a partition in its own memory."""
_SMALL_BYTES = 1 << 16
_NUM_RECEIVED = 16
_received: OrderedDict[str, Any] = OrderedDict()
_here = threading.local()


class RefSegment(Segment):
    """Rows in an object of Ray's store, which lives while a reference to it does."""

    def __init__(self, ref: Any, *, num_rows: int, nbytes: int) -> None:
        self.ref = ref
        self.num_rows = num_rows
        self.nbytes = nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order, in memory of this process."""
        return read_rows(copied(ray.get(self.ref)))

    def __reduce__(self) -> Any:
        """The rows themselves, for processes that are not Ray tasks."""
        return BufferSegment, (copied(ray.get(self.ref)), self.num_rows, self.nbytes)


class BufferSegment(Segment):
    """In a task: the rows of an object that came as an argument."""

    def __init__(self, buffer: pa.Buffer, num_rows: int, nbytes: int) -> None:
        self._buffer = buffer
        self.num_rows = num_rows
        self.nbytes = nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order, where they are in the store."""
        return read_rows(self._buffer)


def copied(content: pa.Buffer) -> pa.Buffer:
    """The content of an object in memory of this process, which Ray cannot use again."""
    return pa.py_buffer(np.frombuffer(content, np.uint8).copy())  # NumPy asks for large pages; `to_pybytes` does not


def read_rows(buffer: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The batches in the content of an object."""
    return iter(pa.ipc.open_stream(buffer))


class RowWriter:
    """Collects batches of one schema until they are worth an object."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.nbytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._batches.append(batch)
        self.nbytes += batch.nbytes

    def __bool__(self) -> bool:
        return bool(self._batches)

    def finish(self) -> tuple[pa.Buffer, int, int]:
        """The content of an object, its rows and bytes; begins anew."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        num_rows, nbytes = sum(batch.num_rows for batch in self._batches), self.nbytes
        self._batches, self.nbytes = [], 0
        return sink.getvalue(), num_rows, nbytes


def put_rows(batches: Iterable[pa.RecordBatch]) -> tuple[RefSegment, ...]:
    """Rows of this process as objects of the store."""
    segments, writer = [], RowWriter()
    for batch in batches:
        writer.append(batch)
        if writer.nbytes >= SEGMENT_BYTES:
            segments.append(_put(writer))
    if writer:
        segments.append(_put(writer))
    return tuple(segments)


def _put(writer: RowWriter) -> RefSegment:
    buffer, num_rows, nbytes = writer.finish()
    return RefSegment(ray.put(buffer), num_rows=num_rows, nbytes=nbytes)


@dataclass(frozen=True)
class Package:
    """A pickled value and the objects that it refers to by number."""

    message: bytes
    refs: list[Any]


class Packer:
    """Pickles calls; what several of them use is put into the store once. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # what is sent may hold something else that is
        self._sent: weakref.WeakKeyDictionary[Any, tuple[str, Any]] = weakref.WeakKeyDictionary()
        self._shared: weakref.WeakKeyDictionary[MemorySegment, tuple[RefSegment, ...]] = weakref.WeakKeyDictionary()

    def pack(self, content: Any, *, root: Any = None) -> Package:
        """`content` without its rows and arrays."""
        stream = io.BytesIO()
        pickler = _ReferencePickler(stream, self, root=root)
        try:
            pickler.dump(content)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise InputError(
                f"{find_culprit(content) or 'the work'} cannot be sent to a Ray task: {error}. Use values and "
                "functions that can be pickled, or run it on threads."
            ) from error
        return Package(stream.getvalue(), pickler.refs)

    def send_once(self, value: Any) -> tuple[str, Any]:
        """A name for `value`, and the object that holds it."""
        with self._lock:
            if value not in self._sent:
                self._sent[value] = (uuid.uuid4().hex, ray.put(self.pack(value, root=value)))
            return self._sent[value]

    def share(self, segment: MemorySegment) -> tuple[RefSegment, ...]:
        """The rows of a segment of this process in the store."""
        with self._lock:
            if segment not in self._shared:
                self._shared[segment] = put_rows(segment.batches())
            return self._shared[segment]


class _ReferencePickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Replaces rows, arrays and what travels once by numbers of objects."""

    def __init__(self, stream: io.BytesIO, packer: Packer, *, root: Any) -> None:
        super().__init__(stream)
        self._packer = packer
        self._root = root
        self.refs: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        if travels_once(value) and value is not self._root:
            name, ref = self._packer.send_once(value)
            return _receive, (name, self._number(ref))
        if isinstance(value, RefSegment):
            return _segment, (self._number(value.ref), value.num_rows, value.nbytes)
        if isinstance(value, MemorySegment):
            return _SegmentsHere, (self._packer.share(value),)
        if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes > _SMALL_BYTES and value.ndim:
            return _argument, (self._number(ray.put(value)),)
        return super().reducer_override(value)

    def _number(self, ref: Any) -> int:
        self.refs.append(ref)
        return len(self.refs) - 1


def unpack(message: bytes, arguments: tuple[Any, ...]) -> Any:
    """In a task: the content of a Package whose objects are `arguments`."""
    outer = getattr(_here, "arguments", ())
    _here.arguments = arguments
    try:
        return cloudpickle.loads(message)
    finally:
        _here.arguments = outer


def _argument(number: int) -> Any:
    return _here.arguments[number]


def _segment(number: int, num_rows: int, nbytes: int) -> BufferSegment:
    return BufferSegment(_argument(number), num_rows, nbytes)


def _receive(name: str, number: int) -> Any:
    """What was sent by this name, unpacked once in each worker process."""
    if name not in _received:
        package: Package = _argument(number)
        _received[name] = unpack(package.message, tuple(ray.get(package.refs)))
        if len(_received) > _NUM_RECEIVED:
            _received.popitem(last=False)
    return _received[name]


class _SegmentsHere(MemorySegment):
    """In a task: the objects that stand for a segment of the process that sent it."""

    def __init__(self, segments: tuple[BufferSegment, ...]) -> None:
        super().__init__([batch for segment in segments for batch in segment.batches()])
