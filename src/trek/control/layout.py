"""Where the control plane keeps its files under its home. Only paths; nothing is created here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

    def trial(self, trial_id: int) -> Path:
        """The files of one trial."""
        return self.trials / str(trial_id)

    def run(self, trial_id: int, run: int) -> Path:
        """The files of one run of a trial: logs, outcomes, code."""
        return self.trial(trial_id) / f"run_{run}"

    def work(self, trial_id: int, run: int) -> Path:
        """What the processes of a run write beside their own folders, if they run as another user."""
        return self.run(trial_id, run) / "work"

    def checkpoints(self, experiment_id: int, trial_id: int, storage: CheckpointStorage) -> str:
        """Where a trial's checkpoints go: a folder, or a URL."""
        own = f"experiment_{experiment_id}/trial_{trial_id}"
        if storage.url:
            return f"{storage.url.rstrip('/')}/{own}"
        if storage.path:
            return str(Path(storage.path).expanduser() / own)
        return str(self.trial(trial_id) / "checkpoints")
