"""Reconciles checkpoints on storage with their rows: a trial that was killed may not have reported all changes."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.models import CheckpointReport
from trek.control.checkpoints.checkpoint_rows import take_checkpoints
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.tables import CheckpointTable, TrialRow
from trek.experiments.checkpoint_address import open_uncached
from trek.system.plain_files import read_plain
from trek.system.urls import is_remote
from trek.train.checkpointing.manifest import MAX_MANIFEST_BYTES
from trek.train.checkpointing.stores import MANIFEST

_LOG = logging.getLogger(__name__)


def find_checkpoints(storage: TrialStorage, *, owner: str) -> dict[str, CheckpointReport] | None:
    """The complete checkpoints in `storage` by uuid; None if it cannot be reached. Slow: call outside transactions.

    Those that another than the trial with the uuid `owner` has written are left out.
    """
    place = storage.address
    try:
        with storage.rights():
            opened = open_uncached(place)
            folders = {name: opened.fetch(name, only=MANIFEST) for name in opened.names()}
            reports = [_read(folder / MANIFEST, f"{place}/{name}", owner=owner) for name, folder in folders.items()]
    except Exception as error:  # noqa: BLE001 - every store has its own exceptions
        _LOG.warning("checkpoints at %s cannot be listed: %s", place, error)
        return None
    if is_remote(place):
        for folder in folders.values():
            shutil.rmtree(folder.parent, ignore_errors=True)
    return {report.uuid: report for report in reports if report is not None}


def remove_unfinished(storage: TrialStorage) -> None:
    """Remove what a run left half written. Call between runs only; slow, so outside transactions."""
    try:
        storage.remove_unfinished()
    except Exception as error:  # noqa: BLE001 - every store has its own exceptions
        _LOG.warning("what was left half written at %s cannot be removed: %s", storage.address, error)


def reconcile_checkpoints(
    session: Session, trial: TrialRow, found: Mapping[str, CheckpointReport], *, are_reports_lost: bool = False
) -> None:
    """Add rows for checkpoints that were not reported, and mark missing ones as deleted. Call between runs only.

    Where reports were lost, a checkpoint that was not reported is removed: the trial would go on after it, and what it
    had to report before would never be known.
    """
    known = session.scalars(
        select(CheckpointTable).where(CheckpointTable.trial_id == trial.id, ~CheckpointTable.is_deleted)
    ).all()
    reported = {row.uuid for row in known}
    unreported = [report for uuid, report in found.items() if uuid not in reported]
    missing = [row.uuid for row in known if row.uuid not in found]
    ignored = [report.uuid for report in unreported] if are_reports_lost else []
    take_checkpoints(session, trial, unreported, gone=[*missing, *ignored])
    for uuid in ignored:
        session.get_one(CheckpointTable, uuid, populate_existing=True).awaits_removal = True


def _read(path: Path, address: str, *, owner: str) -> CheckpointReport | None:
    try:
        manifest = json.loads(read_plain(path, max_bytes=MAX_MANIFEST_BYTES))
        if manifest.get("owner", "") != owner:
            _LOG.warning("the checkpoint at %s was written by another trial, and is left alone", address)
            return None
        return CheckpointReport(
            uuid=manifest["uuid"],
            batches=manifest["batches"],
            path=address,
            num_bytes=sum(file["bytes"] for file in manifest["files"].values()),
            metrics=manifest["metrics"],
            time_s=manifest["time_s"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # incomplete: a trial that resumes skips it
