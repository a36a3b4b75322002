"""ControlPlaneStorage: the checkpoints of a trial, stored and fetched through its control plane.

For processes that share no disk with the control plane and have no URL to write to. It deletes nothing: which
checkpoints of a trial are kept is decided by the control plane.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from trek.client.client import Client
from trek.errors import InputError, NotFound
from trek.experiments.trial_process import TrialProcess, retry_until_reachable
from trek.train.checkpointing.stores.base import Storage

UNREACHABLE_S = 1800.0
"""How long a checkpoint waits for a control plane that does not answer. Meanwhile training goes on to the next one."""
_START = "start"
T = TypeVar("T")


class ControlPlaneStorage(Storage):
    """See the module. `address` is where the control plane stores the checkpoints."""

    def __init__(self, client: Client, *, place: TrialProcess, address: str, patience_s: float = UNREACHABLE_S) -> None:
        self._client = client
        self._trial_id, self._run = place.trial_id, place.run
        self.address = address
        self._patience_s = patience_s

    @classmethod
    def open(cls, address: str) -> Storage:
        """Not by an address: only the process of a trial can have one."""
        raise InputError(f"{address!r} cannot be opened through a control plane. Use a folder or the URL of a store.")

    def prepare(self) -> None:
        """Ask for the names, which only a run that has not ended may do."""
        self.names()

    def workspace(self) -> Path:
        """A local temporary folder."""
        return Path(tempfile.mkdtemp(prefix="trek-checkpoint-"))

    def publish(self, workspace: Path, name: str) -> str:
        """Send the files; the control plane compares them with the manifest before it stores them."""
        return self._ask(lambda: self._client.store_checkpoint(self._trial_id, name, workspace, run=self._run))

    def names(self) -> list[str]:
        """Ask the control plane."""
        return self._ask(lambda: self._client.own_checkpoints(self._trial_id, run=self._run))

    def fetch(self, name: str, *, only: str | None = None) -> Path:
        """Download to a folder that is removed when this process ends."""
        if only is None:
            return self._download(name, self._fetched / "whole" / name)
        whole = self._fetched / "whole" / name
        return whole if whole.is_dir() else self._download(name, self._fetched / only / name, only=only)

    def fetch_start(self) -> Path:
        """Download the checkpoint that the trial starts from."""
        return self._download(None, self._fetched / _START)

    def delete(self, name: str) -> None:
        """Not by a trial."""
        raise InputError(f"checkpoint {name!r} is not deleted by its trial: the control plane decides what is kept.")

    def _download(self, name: str | None, target: Path, *, only: str | None = None) -> Path:
        if target.is_dir():
            return target
        partial = target.with_name(f".{target.name}")

        def download() -> None:
            shutil.rmtree(partial, ignore_errors=True)  # of an attempt that was interrupted
            self._client.fetch_own_checkpoint(self._trial_id, name, partial, run=self._run, only=only)

        try:
            self._ask(download)
        except NotFound as error:
            raise FileNotFoundError(str(error)) from error
        partial.rename(target)
        return target

    def _ask(self, ask: Callable[[], T]) -> T:
        return retry_until_reachable(ask, patience_s=self._patience_s)

    @cached_property
    def _fetched(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="trek-fetched-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
