"""Writes checkpoints in the background: the training thread copies the state once and continues.

One checkpoint is written at a time; the next save waits for the previous one. What was written, or an error, is told on
the training thread, which looks at `is_done` after every batch and then calls `wait`.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from trek._version import __version__
from trek.errors import CheckpointError
from trek.ps.disk_tensors import DiskTensor
from trek.system.disk import storage_error
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, Snapshot, model_file
from trek.train.checkpointing.keeping import KeepPolicy, KeptCheckpoint, ranked
from trek.train.checkpointing.manifest import checksum, write_manifest
from trek.train.checkpointing.stores import MANIFEST, REMEDY, Storage
from trek.train.checkpointing.tensor_files import save_tensors
from trek.train.loggers.base import CheckpointRow
from trek.wire.values import encode, resolved

logger = logging.getLogger(__name__)


def new_name() -> str:
    """The uuid of a checkpoint to be."""
    return str(uuid.uuid4())


class CheckpointWriter:
    """Publishes checkpoints to a Storage and deletes those that the policy does not keep.

    Without a policy it deletes none: the control plane decides for the trials of its experiments.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        policy: KeepPolicy | None,
        trial: Mapping[str, Any] | None = None,
        owner: str | None = None,
        find_job: Callable[[], str] = str,
        on_written: Callable[[CheckpointRow], None] = lambda row: None,
        on_deleted: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`find_job` gives the key of the job, which is written to its checkpoints."""
        self._storage = storage
        self._policy = policy
        self._trial = trial
        self._owner = owner
        self._find_job = find_job
        self.found_job = ""
        """The key of the job that saved the checkpoint which `find_latest` looks at first; "" if none says it."""
        self._on_written = on_written
        self._on_deleted = on_deleted
        self._kept: list[KeptCheckpoint] = []
        self._uuids: dict[str, str] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._pending: Future[CheckpointRow] | None = None
        storage.prepare()
        self._adopt_existing()

    def save(
        self,
        state: Snapshot,
        *,
        batches: int,
        metrics: Mapping[str, float],
        score: float | None,
        name: str | None = None,
    ) -> str:
        """Copy `state` now and write it in the background; returns the uuid. A smaller `score` is better."""
        self.wait()
        name = name or new_name()
        whose = {"uuid": name, "owner": self._owner or "", "job": self._find_job()}
        facts = {**whose, "batches": batches, "metrics": dict(metrics), "score": score, "trial": self._trial}
        snapshot = _Snapshot(state, facts=facts)
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="trek-checkpoint")
        self._pending = self._pool.submit(self._write, snapshot)
        return name

    @property
    def is_done(self) -> bool:
        """Whether a write has ended, well or not, of which `wait` has not told yet."""
        return self._pending is not None and self._pending.done()

    def wait(self) -> None:
        """Wait until the last save has been written, and tell so; raise its error if it failed."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            row = pending.result()
            self._on_written(row)
            self._delete_expired()

    def has_saved(self, batches: int) -> bool:
        """Whether a checkpoint of the run after `batches` is written."""
        self.wait()
        return any(one.batches == batches for one in self._kept)

    def close(self) -> None:
        """Finish writing, and end the background thread."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    @property
    def last(self) -> str | None:
        """Name of the newest checkpoint."""
        return self._kept[-1].name if self._kept else None

    @property
    def best(self) -> str | None:
        """Name of the checkpoint with the best score; the newest if none has a score."""
        best = ranked(self._kept)
        return best[0].name if best else self.last

    def _adopt_existing(self) -> None:
        found: list[CheckpointFolder] = []
        for name in self._storage.names():
            try:
                checkpoint = CheckpointFolder(self._storage.fetch(name, only=MANIFEST))
                checkpoint.check_owner(self._owner)
            except (CheckpointError, FileNotFoundError) as error:
                logger.warning("ignoring a checkpoint: %s", error)
            else:
                found.append(checkpoint)
        for one in sorted(found, key=lambda checkpoint: float(checkpoint.manifest["time_s"])):
            self._remember(one.path.name, one.uuid, one.batches, one.manifest["score"])
        if found:
            self.found_job = str(max(found, key=lambda one: one.path.name).manifest.get("job", ""))

    def _remember(self, name: str, identity: str, batches: int, score: float | None) -> None:
        self._kept.append(KeptCheckpoint(name, batches, score))
        self._uuids[name] = identity

    def _write(self, snapshot: _Snapshot) -> CheckpointRow:
        facts = snapshot.facts
        name = f"batch-{facts['batches']:010d}-{facts['uuid'][:8]}"
        try:
            workspace = self._storage.workspace()
            try:
                num_bytes = snapshot.write(workspace)
                path = self._storage.publish(workspace, name)
            finally:
                shutil.rmtree(workspace, ignore_errors=True)  # publishing may have moved it
        except OSError as error:
            raise storage_error(error, self._storage.address, remedy=REMEDY) from error
        self._remember(name, facts["uuid"], facts["batches"], facts["score"])
        return CheckpointRow(
            uuid=facts["uuid"],
            batches=facts["batches"],
            path=path,
            num_bytes=num_bytes,
            metrics=facts["metrics"],
            time_s=snapshot.time_s,
        )

    def _delete_expired(self) -> None:
        for name in self._policy.expired(self._kept) if self._policy is not None else ():
            self._storage.delete(name)
            self._kept = [c for c in self._kept if c.name != name]
            self._on_deleted(self._uuids.pop(name))


class _Snapshot:
    """A copy of a run's state, and how it is written to a folder."""

    def __init__(self, state: Snapshot, *, facts: Mapping[str, Any]) -> None:
        """`facts` are the entries of the manifest that say what the checkpoint is."""
        self.facts = facts
        self.time_s = time.time()
        self._models = [_copy(model) for model in state.models]
        self._trees: dict[str, tuple[Any, dict[str, torch.Tensor]]] = {}
        for stem, value in [("state", state.shared), *((f"rank_{i}", rank) for i, rank in enumerate(state.ranks))]:
            tree, tensors = encode(value)
            self._trees[stem] = (tree, _copy(tensors))
        self._world_size = len(state.ranks)

    def write(self, folder: Path) -> int:
        """Write every file, the manifest last; returns the total size in bytes."""
        for index, model in enumerate(self._models):
            save_tensors(model, folder / model_file(index))
        for stem, (tree, tensors) in self._trees.items():
            (folder / f"{stem}.json").write_text(json.dumps(tree))
            save_tensors(tensors, folder / f"{stem}.safetensors")
        sizes = {path: path.stat().st_size for path in sorted(folder.iterdir())}
        files = {path.name: {"bytes": size, "sha256": checksum(path)} for path, size in sizes.items()}
        entries = {
            **self.facts,
            "time_s": self.time_s,
            "world_size": self._world_size,
            "versions": {"trek": __version__, "torch": torch.__version__},
            "files": files,
        }
        write_manifest(folder, entries)
        return sum(sizes.values())


def _copy(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A separate copy of each tensor on the CPU, because tensors that share memory cannot share it in the file."""
    return {
        name: t if isinstance(t, DiskTensor) else resolved(t).to("cpu", copy=True).contiguous()
        for name, t in tensors.items()
    }
