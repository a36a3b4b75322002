"""Checkpoints on storage and their rows, brought together: a trial that was killed may have left either unsaid."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.models import CheckpointReport, Report
from trek.control.tables import CheckpointTable, TrialRow
from trek.control.trials.ingest import take_checkpoints
from trek.experiments.checkpoint_address import open_anew
from trek.train.checkpointing.stores import MANIFEST
from trek.world.urls import is_remote

_LOG = logging.getLogger(__name__)


def find_checkpoints(place: str) -> dict[str, CheckpointReport] | None:
    """The whole checkpoints at `place`, by uuid; None where it cannot be reached. Slow: call outside transactions."""
    try:
        storage = open_anew(place)
        folders = {name: storage.fetch(name, only=MANIFEST) for name in storage.names()}
    except Exception as error:  # noqa: BLE001 - every store has exceptions of its own
        _LOG.warning("checkpoints at %s cannot be looked at: %s", place, error)
        return None
    told = [_read(folder / MANIFEST, f"{place}/{name}") for name, folder in folders.items()]
    if is_remote(place):
        for folder in folders.values():
            shutil.rmtree(folder.parent, ignore_errors=True)
    return {report.uuid: report for report in told if report is not None}


def reconcile_checkpoints(session: Session, trial: TrialRow, found: Mapping[str, CheckpointReport]) -> None:
    """Rows for whole checkpoints that nobody told of; checkpoints that are gone marked so. Call between runs only."""
    known = session.scalars(
        select(CheckpointTable).where(CheckpointTable.trial_id == trial.id, ~CheckpointTable.is_deleted)
    ).all()
    told = {row.uuid for row in known}
    take_checkpoints(
        session,
        trial,
        Report(
            run=trial.run,
            checkpoints=[report for uuid, report in found.items() if uuid not in told],
            deleted_checkpoints=[row.uuid for row in known if row.uuid not in found],
        ),
    )


def _read(path: Path, address: str) -> CheckpointReport | None:
    try:
        told = json.loads(path.read_text())
        return CheckpointReport(
            uuid=told["uuid"],
            batches=told["batches"],
            path=address,
            num_bytes=sum(file["bytes"] for file in told["files"].values()),
            metrics=told["metrics"],
            time_s=told["time_s"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # torn: reading it anew is the trial's business, which skips it
