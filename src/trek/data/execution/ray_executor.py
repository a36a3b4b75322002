"""Ray tasks: partitions are worked on by any node of a Ray cluster. Rows that other tasks need are kept in its object
store; those that this process asks for are sent to it.

A task that dies with its worker or its node is run again by Ray, and rows that were lost with a node are made again by
the tasks that made them, so functions must give the same rows for the same rows. Memory is Ray's: what exceeds the
object stores is spilled to disk by Ray. Relational queries run in this process, as with every executor, unless they are
divided into tasks.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa
import ray
from ray.exceptions import RayError

from trek.data.execution.base import Executor, Split, Stream, Task
from trek.data.execution.executor_worker import pickled_answer
from trek.data.execution.local import require_positive
from trek.data.execution.parallel import set_worker_id
from trek.data.execution.partition_store import default_memory_limit
from trek.data.execution.parts import Part, Readable
from trek.data.execution.ray_delivery import Delivery, Destination, Receiver, Room, lost_task
from trek.data.execution.ray_nodes import cluster_resources, num_tasks, require_same_versions
from trek.data.execution.ray_objects import SEGMENT_BYTES, Packer, RefSegment, RowWriter, put_rows, unpack
from trek.data.execution.ray_reading import Reading
from trek.data.execution.worker_memory import keep_freed_memory
from trek.data.progress import progress_bar
from trek.engines.ray.connection import connect
from trek.engines.ray.options import RayOptions

if TYPE_CHECKING:
    from trek.data.plans.plan import PlanNode
    from trek.data.storing.sharing import Handle

_log = logging.getLogger("trek.data")


class RayExecutor(Executor):
    """Runs partitions as Ray tasks, at most `num_workers` at a time: as many as the cluster has CPUs unless given.

    `address` is the cluster's `host:port`; otherwise a connection that exists is used, then RAY_ADDRESS, then a cluster
    started on this machine. With `send_trek`, nodes get the Trek of this process. Each task asks for `cpus_per_task`
    and `gpus_per_task`, and is run `max_retries` times more when its worker or node dies. `memory_limit_bytes` is for
    the queries of this process: rows are in Ray's stores. With `divides_relations`, relational work is done by tasks,
    too: for more rows than this machine has room for.
    """

    runs_here = False

    def __init__(
        self,
        num_workers: int | None = None,
        *,
        memory_limit_bytes: int | None = None,
        spill_dir: Path | None = None,
        address: str | None = None,
        send_trek: bool = False,
        cpus_per_task: float = 1,
        gpus_per_task: float = 0,
        max_retries: int = 5,
        divides_relations: bool = False,
    ) -> None:
        require_positive(num_workers=num_workers, memory_limit_bytes=memory_limit_bytes)
        self.memory_limit_bytes = memory_limit_bytes or default_memory_limit()
        self.spill_dir = spill_dir
        self.divides_relations = divides_relations
        chosen = RayOptions(address=address, send_trek=send_trek)
        connect(chosen.address, sends_trek=chosen.send_trek)
        require_same_versions()
        self._options = {"num_cpus": cpus_per_task, "num_gpus": gpus_per_task, "max_retries": max_retries}
        self._packer = Packer()
        self._segments: weakref.WeakSet[RefSegment] = weakref.WeakSet()
        self._has_warned = False
        self._process_id = os.getpid()
        self._opening = threading.Lock()
        self._receiver: Receiver | None = None
        self.num_workers = num_workers or num_tasks(cpus=cpus_per_task, gpus=gpus_per_task)
        self._store_bytes = cluster_resources().get("object_store_memory", 0)

    @property
    def num_spilled_bytes(self) -> int:
        """Bytes of rows in use that Ray has moved to disk."""
        segments = {segment.ref: segment.nbytes for segment in self._segments}
        places = ray.experimental.get_object_locations(list(segments)) if segments else {}
        return sum(segments[ref] for ref, place in places.items() if place["did_spill"])

    def keep(self, batches: Iterable[pa.RecordBatch]) -> Part:
        """Keep rows in the store of this node."""
        return self._noted(Part(put_rows(batches)))

    def map(self, task: Task, *inputs: Sequence[Readable]) -> list[Part]:
        """Run `task` over partition i of every input, for all i at once; keep what each gives."""
        calls = [(_MapWork(task), index, [parts[index] for parts in inputs], 1) for index in range(len(inputs[0]))]
        return [parts[0] for parts in self._run_all(calls)]

    def exchange(self, split: Split, parts: Sequence[Readable], *, num_partitions: int) -> list[Part]:
        """Send every row to the partition that `split` names; rows of lower partitions come first."""
        calls = [(split, index, [part], num_partitions) for index, part in enumerate(parts)]
        pieces = self._run_all(calls)
        return [
            Part(tuple(segment for source in pieces for segment in source[target].segments))
            for target in range(num_partitions)
        ]

    def collect(self, pieces: Sequence[Readable]) -> Iterator[Stream]:
        """The rows of each piece, fetched while the next ones are computed."""
        with progress_bar(len(pieces), title="data", unit=" partitions", delay_s=1.0) as bar:
            for stream in self.read(pieces):
                yield stream
                bar.update()
        self._warn_of_spilling()

    def read(self, pieces: Sequence[Readable], *, ahead: int | None = None) -> Iterator[Stream]:
        """The rows of each piece, computed by tasks while they are read."""
        if os.getpid() != self._process_id:  # a worker of a DataLoader, which has no connection of its own
            return super().read(pieces)
        receiver = self._open_receiver()
        return Reading(pieces, self._begin, receiver, num_workers=self.num_workers, ahead=ahead).streams()

    def share_rows(self, node: PlanNode) -> Handle:
        """The rows in the object store, for any process of the cluster."""
        from trek.data.storing.ray_sharing import share_on_ray

        return share_on_ray(node, self)

    def close(self) -> None:
        """Receive no more rows. What is kept goes with the last reference to it, the connection with the process."""
        with self._opening:
            if self._receiver is not None:
                self._receiver.close()
                self._receiver = None

    def _run_all(self, calls: Sequence[tuple[Any, int, list[Readable], int]]) -> list[list[Part]]:
        """The parts that each call gives, by target; after a failure nothing new starts."""
        done: dict[int, list[Part]] = {}
        failures: dict[int, BaseException] = {}
        running: dict[Any, tuple[int, int, Any]] = {}
        free, waiting = list(range(self.num_workers)), list(range(len(calls)))[::-1]
        with progress_bar(len(calls), title="data", unit=" partitions", delay_s=1.0) as bar:
            while running or (waiting and not failures):
                while waiting and free and not failures:
                    slot, index = heapq.heappop(free), waiting.pop()
                    generator = self._submit(calls[index], slot)
                    running[generator.completed()] = (index, slot, generator)
                (ended,), _ = ray.wait(list(running), num_returns=1)
                index, slot, generator = running.pop(ended)
                heapq.heappush(free, slot)
                try:
                    parts = _collect(ended, generator, num_targets=calls[index][-1])
                    done[index] = [self._noted(part) for part in parts]
                except BaseException as error:  # noqa: BLE001 - raised once nothing runs any more
                    failures[index] = error
                bar.update()
        self._warn_of_spilling()
        if failures:
            raise failures[min(failures)]
        return [done[index] for index in range(len(calls))]

    def _begin(self, piece: Readable, worker: int, room: Room) -> Delivery:
        delivery, destination = self._open_receiver().expect(room)
        package = self._packer.pack(piece)
        delivery.watch(_deliver.options(**self._options).remote(package.message, worker, destination, *package.refs))
        return delivery

    def _open_receiver(self) -> Receiver:
        with self._opening:
            if self._receiver is None:
                self._receiver = Receiver(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
            return self._receiver

    def _submit(self, call: tuple[Any, int, list[Readable], int], slot: int) -> Any:
        package = self._packer.pack(call)
        return _perform.options(**self._options).remote(package.message, slot, *package.refs)

    def _noted(self, part: Part) -> Part:
        self._segments.update(segment for segment in part.segments if isinstance(segment, RefSegment))
        return part

    def _warn_of_spilling(self) -> None:
        """Say once that Ray spills; asked only when rows may be more than the stores hold."""
        if self._has_warned or sum(segment.nbytes for segment in self._segments) < self._store_bytes / 4:
            return
        if spilled := self.num_spilled_bytes:
            self._has_warned = True
            _log.warning(
                "the rows of this computation exceed the memory limit of Ray's object stores: Ray has spilled %.1f MB "
                "to disk. More nodes, or a larger --object-store-memory, avoid it.", spilled / 1e6,
            )  # fmt: skip


@dataclass(frozen=True)
class _MapWork:
    """A task as a split whose rows all go to target 0."""

    task: Task

    def __call__(self, index: int, *streams: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        return ((0, batch) for batch in self.task(index, *streams))


@ray.remote(num_returns="streaming")
def _perform(message: bytes, slot: int, *arguments: Any) -> Iterator[Any]:
    """In a worker: objects of rows as they are full, and at last a pickled answer that says what they are."""
    _set_up_worker(slot)
    contents: list[tuple[int, int, int]] = []
    try:
        work, index, inputs, num_targets = unpack(message, arguments)
        for target, (buffer, num_rows, nbytes) in _written(work, index, inputs, num_targets):
            contents.append((target, num_rows, nbytes))
            yield buffer
    except BaseException as error:  # noqa: BLE001 - whatever it is, the process that sent the call raises it
        yield pickled_answer(("failed", error))
        return
    yield pickled_answer(("done", contents))


@ray.remote
def _deliver(message: bytes, slot: int, destination: Destination, *arguments: Any) -> bytes:
    """In a worker: compute a piece and send its rows; a pickled answer that says how many batches they are."""
    _set_up_worker(slot)
    try:
        piece: Readable = unpack(message, arguments)
        return pickled_answer(("done", destination.send(piece.batches(), give_way=_give_way)))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the process that reads the rows raises it
        return pickled_answer(("failed", error))


def _give_way(destination: Destination) -> None:
    """In a task that cannot send: wait for another one. While it does, Ray lends its CPUs to others."""
    with contextlib.suppress(RayError):  # the sender tries again, and finds out what is wrong
        ray.get(_wait_for_room.remote(destination))


@ray.remote(num_cpus=0)
def _wait_for_room(destination: Destination) -> None:
    destination.wait_for_room()


def _written(work: Split, index: int, inputs: list[Readable], num_targets: int) -> Iterator[tuple[int, Any]]:
    writers = [RowWriter() for _ in range(num_targets)]
    for target, batch in work(index, *(readable.batches() for readable in inputs)):
        writers[target].append(batch)
        if sum(writer.nbytes for writer in writers) >= SEGMENT_BYTES:
            target = max(range(num_targets), key=lambda one: writers[one].nbytes)
            yield target, writers[target].finish()
    for target, writer in enumerate(writers):
        if writer:
            yield target, writer.finish()


def _set_up_worker(slot: int) -> None:
    from trek.data.execution.polars_engine import limit_threads

    set_worker_id(slot)
    keep_freed_memory()
    num_threads = int(os.environ.get("OMP_NUM_THREADS") or 1)  # Ray sets it to the CPUs of the task
    pa.set_cpu_count(num_threads)
    limit_threads(num_threads)


def _collect(ended: Any, generator: Any, *, num_targets: int) -> list[Part]:
    """The parts that a task which has ended gave, by target; its error, if it failed."""
    try:
        ray.get(ended)
        *refs, last = list(generator)
        state, answer = cloudpickle.loads(ray.get(last))
    except RayError as error:
        raise lost_task(error) from error
    if state == "failed":
        raise answer
    segments: list[list[RefSegment]] = [[] for _ in range(num_targets)]
    for ref, (target, num_rows, nbytes) in zip(refs, answer, strict=True):
        segments[target].append(RefSegment(ref, num_rows=num_rows, nbytes=nbytes))
    return [Part(tuple(one)) for one in segments]
