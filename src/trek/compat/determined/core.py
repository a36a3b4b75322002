"""`determined.core`: scripts with a training loop of their own, over `trek.Reporter`.

Inside of a trial the parts report to it; outside, metrics and checkpoints go to a folder under `$TREK_HOME/runs`.
Steps are Trek's batches.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeAlias

import trek
from trek.compat.determined.distributed import MachineContext
from trek.compat.determined.info import ClusterInfo, get_cluster_info
from trek.errors import InputError

Selector: TypeAlias = Callable[[str], bool]
"""Says by its path whether a file belongs to what is saved or restored."""


class Unit(StrEnum):
    """What the length of an operation counts."""

    BATCHES = "batches"
    RECORDS = "records"
    EPOCHS = "epochs"


class PreemptMode(Enum):
    """Accepted for compatibility: the chief is always asked, and every rank gets its answer."""

    ChiefOnly = "CHIEF_ONLY"
    WorkersAskChief = "WORKERS_ASK_CHIEF"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class DistributedContext(MachineContext):
    """This process among those of the job, and values passed between them through torch.distributed.

    The addresses and ports that Determined's own sockets need are accepted, and nothing is opened there.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        local_rank: int = 0,
        local_size: int = 1,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int = 0,
        pull_port: int = 0,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        self.rank, self.size, self.local_rank, self.local_size = rank, size, local_rank, local_size
        if cross_rank not in (None, self.cross_rank) or cross_size not in (None, self.cross_size):
            raise InputError(
                f"rank {rank} of {size} with {local_size} processes per machine is on machine {self.cross_rank} of "
                f"{self.cross_size}, got cross_rank {cross_rank!r} and cross_size {cross_size!r}. Leave them out."
            )

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> Self:
        """Of the processes that `trek launch`, torchrun, mpirun or srun started; `init_process_group` comes first."""
        world = trek.World.from_env()
        return cls(rank=world.rank, size=world.size, local_rank=world.local_rank, local_size=world.local_size)

    def get_rank(self) -> int:
        """0 to size - 1."""
        return self.rank

    def get_size(self) -> int:
        """Number of processes."""
        return self.size

    def allgather(self, stuff: Any) -> list[Any]:
        """What every rank passed, by rank."""
        if self.size == 1:
            return [stuff]
        import torch.distributed as dist

        if not dist.is_initialized():
            raise InputError(f"{self.size} processes need torch.distributed. Call init_process_group before core.init.")
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, stuff)
        return every

    def gather(self, stuff: Any) -> list[Any] | None:
        """What every rank passed, on the chief; None elsewhere."""
        every = self.allgather(stuff)
        return every if self.rank == 0 else None

    def broadcast(self, stuff: Any) -> Any:
        """What the chief passed."""
        return self.allgather(stuff)[0]

    def close(self) -> None:
        """Nothing is left open."""


class TrainContext:
    """Reports metrics."""

    def __init__(self, reporter: trek.Reporter) -> None:
        self._reporter = reporter

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of any group."""
        self._reporter.log(metrics, batches=steps_completed, group=group)

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: Any = None
    ) -> None:
        """Report training metrics. Those of single batches are not recorded: report more often instead."""
        self.report_metrics("training", steps_completed, metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report validation metrics; the searcher's metric among them decides which trial is best."""
        self.report_metrics("validation", steps_completed, metrics)

    def report_progress(self, progress: float) -> None:
        """Report which part of the run is done, from 0 to 1."""
        self._reporter.log_progress(progress)

    def set_status(self, status: str) -> None:
        """Write the status to the log."""
        print(f"status: {status}", flush=True)

    def get_tensorboard_path(self) -> Path:
        """Where a writer of the script's own may write."""
        return self._reporter.folder


class CheckpointContext:
    """Saves and restores folders."""

    def __init__(self, reporter: trek.Reporter, distributed: DistributedContext) -> None:
        self._reporter = reporter
        self._distributed = distributed

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """A folder to fill, and its uuid; saved at the end of the block. With `shard`, all ranks fill one together."""
        name = self._distributed.broadcast(str(uuid.uuid4())) if shard else str(uuid.uuid4())
        with TemporaryDirectory(prefix="trek-store-") as folder:
            yield Path(folder), name
            self._save(Path(folder), metadata, name=name, shard=shard)

    def upload(
        self,
        ckpt_dir: Path | str,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Save a folder, or the files in it whose paths `selector` takes; returns the checkpoint's uuid."""
        name: str = self._distributed.broadcast(str(uuid.uuid4())) if shard else str(uuid.uuid4())
        with _selected(Path(ckpt_dir), selector) as folder:
            self._save(folder, metadata, name=name, shard=shard)
        return name

    @contextmanager
    def restore_path(self, storage_id: str, *, selector: Selector | None = None) -> Iterator[Path]:
        """A folder with the files of a checkpoint, or with those that `selector` takes, for the block."""
        with self._reporter.restore(storage_id) as folder, _selected(folder, selector) as chosen:
            yield chosen

    def download(self, storage_id: str, ckpt_dir: Path | str, *, selector: Selector | None = None) -> None:
        """Copy the files of a checkpoint to a folder, or those that `selector` takes."""
        with self.restore_path(storage_id, selector=selector) as folder:
            shutil.copytree(folder, ckpt_dir, dirs_exist_ok=True)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """What was saved with a checkpoint."""
        return self._reporter.metadata(storage_id)

    def _save(self, folder: Path, metadata: Mapping[str, Any] | None, *, name: str, shard: bool) -> None:
        facts = dict(metadata or {})
        if not isinstance(facts.get("steps_completed"), int):
            raise InputError(f"the metadata of a checkpoint must have a whole number 'steps_completed', got {facts!r}.")
        if shard and self._distributed.size > 1:
            self._collect(folder)
        if not shard or self._distributed.rank == 0:
            self._reporter.save(folder, batches=facts["steps_completed"], metadata=facts, uuid=name)

    def _collect(self, folder: Path) -> None:
        """Write the files of all ranks to the chief's folder."""
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for part in self._distributed.gather(files) or ():
            for name, content in part.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)


@contextmanager
def _selected(folder: Path, selector: Selector | None) -> Iterator[Path]:
    """A folder with the files whose paths within `folder` the selector takes; without one, `folder` itself."""
    if selector is None:
        yield folder
        return
    with TemporaryDirectory(prefix="trek-selected-") as chosen:
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and selector(name):
                (Path(chosen) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, Path(chosen) / name)
        yield Path(chosen)


class PreemptContext:
    """Asks whether to stop."""

    def __init__(self, reporter: trek.Reporter, distributed: DistributedContext) -> None:
        self._reporter = reporter
        self._distributed = distributed

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Whether to save and end the script: it was paused, or the searcher stops it. All ranks call it together."""
        return bool(self._distributed.broadcast(self._reporter.should_stop))

    def acknowledge_preemption_signal(self) -> None:
        """Accepted for compatibility: ending the script acknowledges."""


class SearcherOperation:
    """Train to a length, and say so."""

    def __init__(self, length: int, reporter: trek.Reporter) -> None:
        self.length = length
        self._reporter = reporter
        self._is_completed = False

    def report_progress(self, length: float) -> None:
        """Report how much of the length is trained."""
        self._reporter.log_progress(min(length / self.length, 1.0))

    def report_completed(self, searcher_metric: Any) -> None:
        """The length is trained. The searcher reads its metric from `train.report_validation_metrics`."""
        if self._is_completed:
            raise InputError("report_completed was called twice for one operation. Call it once, at its end.")
        self._is_completed = True
        self._reporter.log_progress(1.0)


class SearcherContext:
    """Says how long to train."""

    def __init__(self, reporter: trek.Reporter) -> None:
        self._reporter = reporter

    def operations(self, searcher_mode: Any = None, auto_ack: bool = True) -> Iterator[SearcherOperation]:
        """One operation, to the length of the trial; a search that stops it earlier does so through `preempt`.

        Outside of a trial the length is 1, as it was there.
        """
        yield SearcherOperation(self._reporter.length.count if self._reporter.length else 1, self._reporter)

    def get_configured_units(self) -> Unit | None:
        """What lengths count; None outside of a trial."""
        return Unit(self._reporter.length.unit) if self._reporter.length else None


class Context:
    """What a script has: `train`, `checkpoint`, `preempt`, `searcher`, `distributed` and `info`."""

    def __init__(self, reporter: trek.Reporter, distributed: DistributedContext, info: ClusterInfo | None) -> None:
        self._reporter = reporter
        self.distributed = distributed
        self.info = info
        self.train = TrainContext(reporter)
        self.checkpoint = CheckpointContext(reporter, distributed)
        self.preempt = PreemptContext(reporter, distributed)
        self.searcher = SearcherContext(reporter)

    def __enter__(self) -> Self:
        self._reporter.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._reporter.__exit__(kind, error, tb)

    def close(self) -> None:
        """Finish writing and deliver what was reported."""
        self._reporter.close()


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: Path | str | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    **ignored: Any,
) -> Context:
    """The context of this script. Outside of a trial, `checkpoint_storage` is the folder to write to."""
    if ignored:
        raise InputError(f"core.init does not know {sorted(ignored)[0]!r}. Remove it.")
    world = trek.World.from_env()
    if distributed is None and world.is_distributed:
        raise InputError(
            f"this script runs as {world.size} processes. Pass distributed="
            "core.DistributedContext.from_torch_distributed() to core.init."
        )
    chosen = distributed or DistributedContext(rank=0, size=1)
    reporter = trek.Reporter(name="core", folder=checkpoint_storage, world=world)
    return Context(reporter, chosen, get_cluster_info())
