"""`trek.trial_info`: what a program may know of the trial that it is run for. Importing it loads no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trek.client.client import Client
from trek.client.models import Assignment
from trek.experiments.trial_process import TrialProcess


@dataclass(frozen=True)
class TrialInfo:
    """The trial of this process, as its control plane has it."""

    trial_id: int
    experiment_id: int
    hparams: dict[str, Any]
    config: dict[str, Any]
    """The whole config of the experiment."""
    seed: int
    length: dict[str, int]
    """How long to train: `{batches: n}`, `{records: n}` or `{epochs: n}`."""
    run: int
    """1 for the first run of the trial, 2 after its first restart, …"""
    checkpoint: str | None
    """The uuid of the trial's newest checkpoint, or of the one that it starts from; None if there is none."""
    master_url: str


def trial_info(environ: Mapping[str, str] = os.environ) -> TrialInfo | None:
    """The trial that this process trains; None outside of a trial."""
    if not environ.get("TREK_TRIAL_ID"):
        return None
    place = TrialProcess.from_env(environ)
    with place.open_client() as client:
        assignment = place.assignment(client)
        checkpoint = _checkpoint(assignment, place=place, client=client)
    return TrialInfo(
        trial_id=assignment.trial_id,
        experiment_id=assignment.experiment_id,
        hparams=assignment.hparams,
        config=assignment.config,
        seed=assignment.seed,
        length=assignment.length,
        run=assignment.run,
        checkpoint=checkpoint,
        master_url=place.address.url,
    )


def _checkpoint(assignment: Assignment, *, place: TrialProcess, client: Client) -> str | None:
    # Imported here because reading a checkpoint loads torch.
    from trek.experiments.trial_storage_choice import open_trial_storage, resume_point
    from trek.train.checkpointing.checkpoint_folder import CheckpointFolder, find_latest

    storage = open_trial_storage(assignment, place=place, client=client)
    start = resume_point(assignment, storage)
    if start != "latest":
        return CheckpointFolder(start).uuid
    found = find_latest(storage, owner=assignment.owner or None)
    return found.uuid if found else None
