"""Archive: a run's checkpoints. Collects the state of every rank, has it written, finds it again.

A run without a place to save has an Archive too: one that refuses with a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, RunState, find_latest, open_checkpoint
from trek.train.checkpointing.checkpoint_writer import CheckpointWriter
from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.checkpointing.stores import open_storage
from trek.train.metrics.journal import Journal


class Archive:
    """Checkpoints of one run, seen from one rank; only the leader writes."""

    def __init__(
        self,
        place: Path | str | None,
        *,
        strategy: Strategy,
        journal: Journal,
        policy: KeepPolicy | None = None,
        trial: Mapping[str, Any] | None = None,
    ) -> None:
        self._strategy = strategy
        self._storage = open_storage(place) if place is not None else None
        self._writer: CheckpointWriter | None = None
        if self._storage is not None and strategy.world.is_leader:
            self._writer = CheckpointWriter(
                self._storage,
                policy=policy or KeepPolicy(),
                trial=trial,
                on_written=journal.tell_checkpoint,
                on_deleted=journal.tell_deleted,
            )

    @property
    def is_open(self) -> bool:
        """Whether there is a place to save to."""
        return self._storage is not None

    def save(self, state: RunState, *, batches: int, metrics: Mapping[str, float], score: float | None) -> str | None:
        """Copy the state and write it in the background; its uuid, on the leader."""
        if self._storage is None:
            raise InputError("there is no place to save to. Pass checkpoint_dir to the Traveler.")
        if self._writer is None:
            return None
        return self._writer.save(state, batches=batches, metrics=metrics, score=score)

    def find(self, resume: CheckpointFolder | Path | str | None) -> CheckpointFolder | None:
        """The checkpoint `resume` names; for "latest" the newest whole one here, None when there is none.

        The leader looks and tells the others, so that all ranks resume from the same one.
        """
        if resume is None or isinstance(resume, CheckpointFolder):
            return resume
        if resume != "latest":
            return open_checkpoint(resume)
        if self._storage is None:
            raise InputError("resume='latest' needs checkpoint_dir, the folder to look in.")
        found = find_latest(self._storage) if self._strategy.world.is_leader else None
        name = self._strategy.broadcast(found.path.name if found else None)
        return found or (CheckpointFolder(self._storage.fetch(name)) if name else None)

    def wait(self) -> None:
        """Return when everything saved is on storage."""
        if self._writer:
            self._writer.wait()

    def close(self) -> None:
        """Finish writing."""
        if self._writer:
            self._writer.close()

    def path(self, which: Literal["last", "best"]) -> Path | None:
        """Where the newest or the best checkpoint is, on the leader."""
        name = getattr(self._writer, which) if self._writer else None
        return self._storage.fetch(name) if name and self._storage else None
