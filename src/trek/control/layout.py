"""Where the control plane keeps its files under its home. Only paths; nothing is created here.

The names of a trial's folders include its uuid, so that trials of several databases never share one, neither in a home
nor in a storage.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.run_as import RunAs, check_url
from trek.control.tables import TrialRow
from trek.experiments.config import CheckpointStorage
from trek.system.urls import is_remote


@dataclass(frozen=True)
class Layout:
    """The folders of one control plane."""

    home: Path
    run_as: RunAs | None = None
    """Whom trials run as; None for the user of the control plane."""

    @property
    def trials(self) -> Path:
        """The folders of all trials: where other users need to reach theirs, beside the home, which they must not."""
        return self.home / "trials" if self.run_as is None else self.home.with_name(f"{self.home.name}-trials")

    @property
    def user_homes(self) -> Path:
        """A TREK_HOME for each user that trials run as: that of the control plane holds its token and its database."""
        return self.trials / "homes"

    @property
    def archives(self) -> Path:
        """Archives of model folders, named by sha256."""
        return self.home / "archives"

    @property
    def address_file(self) -> Path:
        """Holds the address of the running control plane."""
        return self.home / "control.json"

    def trial(self, trial: TrialRow) -> Path:
        """The files of one trial."""
        return self.trials / trial.folder_name

    def run(self, trial: TrialRow) -> Path:
        """The files of the current run of a trial: logs, outcomes, code."""
        return self.trial(trial) / f"run_{trial.run}"

    def work(self, trial: TrialRow) -> Path:
        """What the processes of the current run write beside their own folders, if they run as another user."""
        return self.run(trial) / "work"

    def writable(self, trial: TrialRow, *, is_other_user: bool) -> Path:
        """Where the processes of the current run write."""
        return self.work(trial) if is_other_user else self.run(trial)

    def checkpoints(self, trial: TrialRow, storage: CheckpointStorage, *, owner: str) -> TrialStorage:
        """Where the checkpoints of a trial of the user `owner` go: a folder, or a URL."""
        root, inner = str(self.trials), f"{trial.folder_name}/checkpoints"
        if storage.url or storage.path:
            root = (storage.url or str(Path(storage.path or "").expanduser())).rstrip("/")
            inner = f"experiment_{trial.experiment_id}/trial_{trial.folder_name}"
        return TrialStorage(root=root, inner=inner, rights=partial(self.rights, root, owner=owner))

    def check(self, storage: CheckpointStorage) -> None:
        """InputError for a storage that trials of this control plane cannot use."""
        if self.run_as is not None and storage.url and is_remote(storage.url):
            check_url(storage.url)

    def rights(self, address: str, *, owner: str) -> AbstractContextManager[None]:
        """A block that touches the files at `address`, which trials of `owner` can write to; see `RunAs.rights_at`."""
        return nullcontext() if self.run_as is None else self.run_as.rights_at(address, owner=owner)
