"""ReportedStorage: the checkpoints of a trial without those whose reports never arrived.

A run that is lost with its machine may leave a checkpoint that is newer than the last report that its control plane
has. Resuming there would skip what was not reported, so the next run does not see it, and trains that part again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from trek.errors import InputError
from trek.train.checkpointing.stores import Storage


class ReportedStorage(Storage):
    """`inner` without the checkpoints called `hidden`; what is published later is there."""

    def __init__(self, inner: Storage, *, hidden: Collection[str]) -> None:
        self.inner = inner
        self.address = inner.address
        self._hidden = frozenset(hidden)

    @classmethod
    def open(cls, address: str) -> Storage:
        """Not by an address, which says nothing of reports."""
        raise InputError(f"{address!r} cannot be opened without reports. Use a folder or the URL of a store.")

    def refresh(self) -> None:
        """Of the inner one."""
        self.inner.refresh()

    def prepare(self) -> None:
        """Of the inner one."""
        self.inner.prepare()

    def workspace(self) -> Path:
        """Of the inner one."""
        return self.inner.workspace()

    def publish(self, workspace: Path, name: str) -> str:
        """To the inner one."""
        return self.inner.publish(workspace, name)

    def names(self) -> list[str]:
        """Without those that are hidden."""
        return [name for name in self.inner.names() if name not in self._hidden]

    def fetch(self, name: str, *, only: str | None = None) -> Path:
        """From the inner one."""
        return self.inner.fetch(name, only=only)

    def delete(self, name: str) -> None:
        """From the inner one."""
        self.inner.delete(name)

    def remove_unfinished(self) -> None:
        """From the inner one."""
        self.inner.remove_unfinished()
