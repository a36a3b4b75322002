"""Where a process of a trial keeps its checkpoints: a store by URL, a folder, or through the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trek.client.client import Client
from trek.client.models import Assignment
from trek.experiments.checkpoint_address import fetch_checkpoint
from trek.experiments.control_plane_storage import ControlPlaneStorage
from trek.experiments.reported_storage import ReportedStorage
from trek.experiments.trial_process import TrialProcess
from trek.system.urls import is_remote
from trek.train.checkpointing.stores import Storage, open_storage
from trek.world import World


def open_trial_storage(assignment: Assignment, *, place: TrialProcess, client: Client) -> Storage:
    """Each process decides for itself, since those of one trial may run on machines with and without a shared disk."""
    address = assignment.checkpoint_dir
    if place.shares_disk or is_remote(address):
        return _reported(open_storage(address), assignment)
    return _reported(ControlPlaneStorage(client, place=place, address=address), assignment)


def _reported(storage: Storage, assignment: Assignment) -> Storage:
    if assignment.checkpoints is None or assignment.run == 1:  # nobody has saved before the first run
        return storage
    hidden = set(storage.names()).difference(assignment.checkpoints)
    return ReportedStorage(storage, hidden=hidden) if hidden else storage


def tell_storage(storage: Storage, *, world: World) -> None:
    """Write where checkpoints go to the trial's log, once; a folder that the control plane reads needs no word."""
    if not world.is_leader:
        return
    storage = storage.inner if isinstance(storage, ReportedStorage) else storage
    if isinstance(storage, ControlPlaneStorage):
        print(f"trek: checkpoints go through the control plane to its folder {storage.address}", flush=True)
    elif is_remote(storage.address):
        print(f"trek: checkpoints go to {storage.address}", flush=True)


def resume_point(assignment: Assignment, storage: Storage) -> Path | Literal["latest"]:
    """The trial's newest checkpoint that its control plane knows; if there is none, the one in its assignment."""
    if assignment.resume is None or storage.names():
        return "latest"
    storage = storage.inner if isinstance(storage, ReportedStorage) else storage
    if isinstance(storage, ControlPlaneStorage) and not is_remote(assignment.resume):
        return storage.fetch_start()
    return fetch_checkpoint(assignment.resume)
