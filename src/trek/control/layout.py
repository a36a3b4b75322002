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
        return self.home / "trials" / trial.folder_name

    def run(self, trial: TrialRow) -> Path:
        """The files of the current run of a trial: logs, outcomes, code."""
        return self.trial(trial) / f"run_{trial.run}"

    def checkpoints(self, trial: TrialRow, storage: CheckpointStorage) -> TrialStorage:
        """Where a trial's checkpoints go: a folder, or a URL."""
        if not storage.url and not storage.path:
            return TrialStorage(root=str(self.home), inner=f"trials/{trial.folder_name}/checkpoints")
        root = storage.url or str(Path(storage.path or "").expanduser())
        return TrialStorage(root=root.rstrip("/"), inner=f"experiment_{trial.experiment_id}/trial_{trial.folder_name}")
