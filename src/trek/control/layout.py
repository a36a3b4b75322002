"""Where the control plane keeps its files under its home. Only paths; nothing is created here.

The names of a trial's folders include its uuid, so that trials of several databases never share one, neither in a home
nor in a storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.tables import TrialRow
from trek.experiments.config import CheckpointStorage


@dataclass(frozen=True)
class Layout:
    """The folders of one control plane."""

    home: Path
    trials_root: Path | None = None
    """Where the folders of trials are, if other users than that of the control plane need to reach them."""

    @property
    def trials(self) -> Path:
        """The folders of all trials."""
        return self.trials_root or self.home / "trials"

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

    def checkpoints(self, trial: TrialRow, storage: CheckpointStorage) -> TrialStorage:
        """Where a trial's checkpoints go: a folder, or a URL."""
        if not storage.url and not storage.path:
            return TrialStorage(root=str(self.trials), inner=f"{trial.folder_name}/checkpoints")
        root = storage.url or str(Path(storage.path or "").expanduser())
        return TrialStorage(root=root.rstrip("/"), inner=f"experiment_{trial.experiment_id}/trial_{trial.folder_name}")
