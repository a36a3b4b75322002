"""`twister2.Twister2Environment`: the workers that run a script, and the sources of its TSets.

Workers are the processes of `trek launch`, mpirun, torchrun or srun. A script that is started alone starts itself with
`trek launch` as as many processes as its resources say.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import pyarrow as pa

import trek
from trek.compat.twister2.tset.fn.SourceFunc import SourceFunc
from trek.compat.twister2.tset.TSet import TSet, elements_batch, elements_table
from trek.compat.twister2.workers import Workers
from trek.errors import InputError


def _start_again(num_workers: int) -> NoReturn:
    words = [sys.executable, "-m", "trek", "launch", "--workers", str(num_workers), *sys.argv]
    sys.stdout.flush()
    os.execv(sys.executable, words)  # noqa: S606 - this script, once for each worker


class Twister2Environment:
    """One worker's view of the job."""

    def __init__(
        self,
        name: str = "twister2",
        config: Mapping[str, Any] | None = None,
        resources: Sequence[Mapping[str, Any]] = (),
        mpi_aware: bool = False,
        *,
        start_again: Callable[[int], NoReturn] = _start_again,
    ) -> None:
        """`resources` name how many `instances` there are; cores and memory are the machine's own."""
        wanted = sum(_instances(one) for one in resources) or 1
        world = trek.World.from_env()
        if world.size == 1 and wanted > 1:
            start_again(wanted)
        if world.size != wanted and resources:
            raise InputError(
                f"the resources say {wanted} instances, but there are {world.size} processes. Start as many, or change "
                "the resources."
            )
        self.name = name
        self.worker_id = world.rank
        self.world_size = world.size
        self.mpi_aware = mpi_aware
        self._workers = Workers.open() if mpi_aware else None

    def create_source(self, source: SourceFunc, parallelism: int = 1) -> TSet:
        """A TSet with a copy of the source for each partition."""
        if not (callable(getattr(source, "has_next", None)) and callable(getattr(source, "next", None))):
            raise InputError(f"a source must have has_next() and next(), got {type(source).__name__}.")
        local = self.local_partitions(parallelism)

        def read(context: Any) -> Iterable[pa.RecordBatch]:
            own = copy.copy(source)
            while own.has_next():
                yield elements_batch([own.next()])

        table = trek.data.Table.generate(read, num_partitions=len(local)) if local else elements_table([])
        return TSet(table, self, parallelism, "source")

    def create_keyed_source(self, source: SourceFunc, parallelism: int = 1) -> TSet:
        """The same of a source whose elements are pairs (key, value)."""
        return self.create_source(source, parallelism)

    def parallelize_list(self, lst: Iterable[Any], parallelism: int = 1) -> TSet:
        """A TSet of a list that every worker has."""
        return self.parallelize(lst, parallelism)

    def parallelize_dict(self, kv_map: Mapping[Any, Any], parallelism: int = 1) -> TSet:
        """A TSet of pairs (key, value)."""
        return self.parallelize(kv_map.items(), parallelism)

    def parallelize(self, elements: Iterable[Any], parallelism: int = 1) -> TSet:
        """A TSet of a list that every worker has."""
        every = list(elements)
        local = self.local_partitions(parallelism)
        parts = [every[len(every) * i // parallelism : len(every) * (i + 1) // parallelism] for i in local]
        batches = [elements_batch(part) for part in parts]
        if not batches:
            return TSet(elements_table([]), self, parallelism, "parallelize")
        table = trek.data.Table.generate(lambda context: iter([batches[context.index]]), num_partitions=len(batches))
        return TSet(table, self, parallelism, "parallelize")

    def local_partitions(self, parallelism: int) -> list[int]:
        """The numbers of the partitions of this worker: consecutive ones, so that elements keep their order."""
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise InputError(f"parallelism must be a whole number of at least 1, got {parallelism!r}.")
        first, after = (-(-worker * parallelism // self.world_size) for worker in (self.worker_id, self.worker_id + 1))
        return list(range(first, after))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Begin the block when all workers are there, and leave it when all are done.

        So what a worker did before, such as making a folder, is done for all of them, as scripts of one program for
        all workers expect.
        """
        self.meet()
        yield
        self.meet()

    def meet(self) -> None:
        """Wait for all workers."""
        self.exchange([])

    def exchange(self, elements: list[Any]) -> list[list[Any]]:
        """What every worker passes, by worker; all of them call it together."""
        if self.world_size == 1:
            return [elements]
        self._workers = self._workers or Workers.open()
        return self._workers.gather(elements)

    def finalize(self) -> None:
        """Leave the other workers."""
        if self._workers is not None:
            self._workers.close()


def _instances(resource: Mapping[str, Any]) -> int:
    value = resource.get("instances", 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"instances must be a whole number of at least 1, got {value!r}.")
    return value
