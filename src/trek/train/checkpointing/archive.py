"""Archive: the checkpoints of a run. Saves its state and finds checkpoints to resume from.

A run without a checkpoint folder has an Archive too, which raises an error when the run is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, Snapshot, find_latest, open_checkpoint
from trek.train.checkpointing.checkpoint_writer import CheckpointWriter
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.stores import MANIFEST, Storage, open_storage
from trek.train.metrics.journal import Journal


class Archive:
    """Checkpoints of one run, seen from one rank; only the leader writes."""

    def __init__(
        self,
        place: Path | str | Storage | None,
        *,
        strategy: Strategy,
        journal: Journal,
        policy: KeepPolicy | None = None,
        trial: Mapping[str, Any] | None = None,
        owner: str | None = None,
        find_job: Callable[[], str] = str,
    ) -> None:
        """`policy` None deletes nothing; `owner` is written to checkpoints, and those of others are left alone.

        `find_job` gives the key of the job, which is written to checkpoints too.
        """
        self._strategy = strategy
        self._owner = owner
        self._trial = dict(trial) if trial is not None else None
        self._storage = open_storage(place) if place is not None else None
        self._make_writer = partial(
            CheckpointWriter,
            policy=policy,
            trial=self._trial,
            owner=owner,
            find_job=find_job,
            on_written=journal.log_checkpoint,
            on_deleted=journal.log_checkpoint_deleted,
        )
        self._writer: CheckpointWriter | None = None
        self._open_writer()

    @property
    def is_open(self) -> bool:
        """Whether checkpoints can be saved."""
        return self._storage is not None

    @property
    def found_job(self) -> str:
        """On the leader, the key of the job whose checkpoints were there before; "" if there are none."""
        return self._writer.found_job if self._writer is not None else ""

    def describe_batches(self, signature: Mapping[str, Any] | None) -> None:
        """Record the signature of the Trial's batches with every checkpoint that is saved from now on."""
        if self._trial is not None:
            self._trial["batch"] = signature

    def _open_writer(self) -> None:
        """The leader's, also of a rank that has become the leader."""
        if self._writer is None and self._storage is not None and self._strategy.world.is_leader:
            self._writer = self._make_writer(self._storage)

    def follow_leader(self) -> None:
        """The leader may be another rank now; one that is not any more finishes what it writes."""
        if self._writer is not None and not self._strategy.world.is_leader:
            self._writer.close()
            self._writer = None

    def check_open(self) -> None:
        """Raise `InputError` if checkpoints cannot be saved."""
        if not self.is_open:
            raise InputError("cannot save: no checkpoint_dir is set. Pass checkpoint_dir to the Traveler.")

    def save(
        self, state: Snapshot, *, batches: int, metrics: Mapping[str, float], score: float | None, name: str | None
    ) -> str | None:
        """Copy the state and write it in the background; returns the uuid on the leader, which is `name` if given."""
        if not self._strategy.world.is_leader:
            return None
        self._open_writer()
        assert self._writer is not None
        return self._writer.save(state, batches=batches, metrics=metrics, score=score, name=name)

    def find(self, resume: CheckpointFolder | Path | str | None, *, since_s: float = 0.0) -> CheckpointFolder | None:
        """The checkpoint that `resume` names; for "latest", the newest complete one of this run, or None.

        The leader finds it and broadcasts the name, so that all ranks resume from the same checkpoint. Of those in the
        folder, only the ones that were saved after `since_s` count.
        """
        if resume is None or isinstance(resume, CheckpointFolder):
            return resume
        if resume != "latest":
            return open_checkpoint(resume)
        if self._storage is None:
            raise InputError("resume='latest' needs a checkpoint_dir to search. Pass checkpoint_dir to the Traveler.")
        found = find_latest(self._storage, owner=self._owner) if self._strategy.world.is_leader else None
        if found is not None and float(found.manifest["time_s"]) < since_s:
            found = None
        name = self._strategy.broadcast(found.path.name if found else None)
        return found or (CheckpointFolder(self._storage.fetch(name)) if name else None)

    def tell(self) -> None:
        """Tell of a checkpoint whose writing has ended, or raise its error; returns at once if there is none."""
        if self._writer is not None and self._writer.is_done:
            self._writer.wait()

    def has_saved(self, batches: int) -> bool:
        """Whether there is a checkpoint of the run after `batches`; on the leader, and after writing has ended."""
        self._open_writer()
        return self._writer is not None and self._writer.has_saved(batches)

    def wait(self) -> None:
        """Wait until everything saved has been written."""
        if self._writer:
            self._writer.wait()

    def close(self) -> None:
        """Finish writing."""
        if self._writer:
            self._writer.close()

    def path(self, which: Literal["last", "best"]) -> Path | None:
        """The path of the newest or the best checkpoint, on the leader; None if there is none, or it was removed."""
        self._open_writer()
        name = getattr(self._writer, which) if self._writer else None
        if name is None or self._storage is None:
            return None
        try:
            folder = self._storage.fetch(name)
        except FileNotFoundError:
            return None
        return folder if (folder / MANIFEST).exists() else None
