"""Reporter: for a program whose training loop is its own: reports metrics and progress, saves folders, asks to stop.

In a command of an experiment it belongs to the trial, as a Traveler does; elsewhere it writes to a folder. It does not
train, and it does not join processes: only the leader's reports and checkpoints count.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from trek.errors import InputError, NotFound
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, Snapshot, find_latest
from trek.train.checkpointing.checkpoint_writer import CheckpointWriter
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.stores import open_storage
from trek.train.folders import new_run_folder
from trek.train.length import Length
from trek.train.loggers.base import CheckpointRow, Logger, MetricRow
from trek.train.loggers.jsonl import JSONLLogger
from trek.train.loop.stopping import StopOnSignals, StopRequest
from trek.train.metrics.scalars import Scalars
from trek.train.settings import TrainSettings
from trek.train.trial_host import find_host
from trek.world import World

_FILES = "files"
_METADATA = "metadata"


class Reporter:
    """Reports one run from one process. Use it as a context manager, which ends with everything delivered.

    Outside of a trial, `metrics.jsonl` and the checkpoints are written to `folder`, by default a new folder `name`
    under `$TREK_HOME/runs`.
    """

    def __init__(self, *, name: str = "run", folder: Path | str | None = None, world: World | None = None) -> None:
        self.stop = StopRequest()
        self.world = world or World.from_env()
        host = find_host(self.world, stop=self.stop)
        own = Path(folder) if folder is not None else None
        self.folder = host.folder if host else own or new_run_folder(name)
        self.length: Length | None = TrainSettings.of(**host.settings).max_length if host else None
        """How long the trial is to be; None outside of a trial."""
        self._owner = host.owner if host else None
        self._storage = open_storage(host.checkpoint_dir if host else self.folder / "checkpoints")
        self._resume = host.resume if host else None
        loggers: Sequence[Logger] = host.loggers if host else [JSONLLogger.open(self.folder)]
        self._loggers = list(loggers) if self.world.is_leader else []
        self._writer: CheckpointWriter | None = None
        self._validated: tuple[int, dict[str, float]] = (0, {})
        self._scalars = Scalars()
        self._signals = StopOnSignals(self.stop) if host is None else None
        for logger in self._loggers:
            logger.start(name=name, hparams={})

    # -- reports

    def log(self, metrics: Mapping[str, Any], *, batches: int, group: str = "training", epoch: float = 0.0) -> None:
        """Report metrics after `batches` batches; those of the group "validation" decide which trial is best."""
        if isinstance(batches, bool) or not isinstance(batches, int) or batches < 0:
            raise InputError(f"batches must be a whole number of at least 0, got {batches!r}.")
        values = self._scalars.of(metrics)
        if group == "validation":
            self._validated = batches, values
        row = MetricRow(group, batches, epoch, values, time.time())
        for logger in self._loggers:
            logger.log_metrics(row)

    def log_progress(self, fraction: float) -> None:
        """Report that `fraction` of the run is done."""
        if not 0 <= fraction <= 1:
            raise InputError(f"progress must be from 0 to 1, got {fraction!r}.")
        for logger in self._loggers:
            logger.log_progress(fraction)

    @property
    def should_stop(self) -> bool:
        """Whether the run was asked to stop: by a pause, the searcher, or a signal. Save, and end the program."""
        return self.stop.is_set

    # -- checkpoints

    def save(
        self, folder: Path | str, *, batches: int, metadata: Mapping[str, Any] | None = None, uuid: str | None = None
    ) -> str:
        """Save all files of `folder` as a checkpoint; returns its uuid, by default a new one, once it is written."""
        if not self.world.is_leader:
            raise InputError("only the leader (rank 0) saves checkpoints. Call save there, with the files of all.")
        root = Path(folder)
        files = {str(path.relative_to(root)): _content(path) for path in sorted(root.rglob("*")) if path.is_file()}
        shared = {_FILES: files, _METADATA: dict(metadata or {}), "optimization": {"emas": []}}
        at, metrics = self._validated
        state = Snapshot(models=[], shared=shared, ranks=[{}])
        writer = self._open_writer()
        made = writer.save(state, batches=batches, metrics=metrics if at == batches else {}, score=None, name=uuid)
        writer.wait()
        return made

    @property
    def latest(self) -> str | None:
        """The uuid of the newest checkpoint of this run, or of the one that the trial starts from; None at first."""
        found = self._start()
        return found.uuid if found else None

    @contextmanager
    def restore(self, uuid: str) -> Iterator[Path]:
        """A temporary folder with the files of a checkpoint, verified by checksum."""
        target = Path(tempfile.mkdtemp(prefix="trek-restore-"))
        try:
            for name, content in self._shared(uuid)[_FILES].items():
                path = target / name
                if not path.resolve().is_relative_to(target.resolve()):
                    raise InputError(f"checkpoint {uuid} has a file outside of its folder: {name!r}.")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.tobytes())
            yield target
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def metadata(self, uuid: str) -> dict[str, Any]:
        """What was passed to `save`."""
        return dict(self._shared(uuid)[_METADATA])

    # -- its end

    def close(self) -> None:
        """Finish writing and deliver what was reported."""
        if self._writer is not None:
            self._writer.close()
        for logger in self._loggers:
            logger.close()

    def __enter__(self) -> Self:
        if self._signals is not None:
            self._signals.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._signals is not None:
            self._signals.__exit__(kind, error, tb)
        self.close()

    def _open_writer(self) -> CheckpointWriter:
        if self._writer is None:
            policy = KeepPolicy() if self._owner is None else None
            self._writer = CheckpointWriter(
                self._storage, policy=policy, owner=self._owner, on_written=self._tell_written
            )
        return self._writer

    def _tell_written(self, row: CheckpointRow) -> None:
        for logger in self._loggers:
            logger.log_checkpoint(row)

    def _start(self) -> CheckpointFolder | None:
        if isinstance(self._resume, Path):
            return find_latest(self._storage, owner=self._owner) or CheckpointFolder(self._resume)
        return find_latest(self._storage, owner=self._owner)

    def _shared(self, uuid: str) -> dict[str, Any]:
        named = [name for name in self._storage.names() if name.endswith(uuid[:8])]
        found = CheckpointFolder(self._storage.fetch(named[0])) if named else self._start()
        if found is None or found.uuid != uuid:
            raise NotFound(f"checkpoint {uuid!r} not found in {self._storage.address}.")
        shared = found.read().shared
        if _FILES not in shared:
            raise InputError(f"checkpoint {uuid} was not saved from a folder. Read it with trek.Checkpoint.")
        return shared


def _content(path: Path) -> Any:
    return np.frombuffer(path.read_bytes(), dtype=np.uint8)
