"""`get_cluster_info`: what a script may know of its trial, from `trek.trial_info`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trek
from trek.errors import InputError


@dataclass(frozen=True)
class TrialInfo:
    """The trial of a script."""

    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: dict[str, Any]
    _config: dict[str, Any]


@dataclass(frozen=True)
class ClusterInfo:
    """Where a script runs."""

    master_url: str
    latest_checkpoint: str | None
    """The uuid of the checkpoint to go on from; None for a new start."""
    _trial: TrialInfo | None
    task_type: str = "TRIAL"

    @property
    def trial(self) -> TrialInfo:
        """The script's trial."""
        if self._trial is None:
            raise InputError("this script runs outside of a trial, so it has no trial info.")
        return self._trial

    @property
    def user_data(self) -> dict[str, Any]:
        """The `data` section of the config."""
        return dict(self.trial._config.get("data", {}))


def get_cluster_info() -> ClusterInfo | None:
    """The script's trial and how far it is; None outside of a trial."""
    found = trek.trial_info()
    if found is None:
        return None
    trial = TrialInfo(found.trial_id, found.experiment_id, found.seed, found.hparams, found.config)
    return ClusterInfo(found.master_url, found.checkpoint, trial)
