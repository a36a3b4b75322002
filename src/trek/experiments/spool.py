"""Spool: a trial's reports on disk until the control plane has them, so that a killed trial loses none.

A report is written to the file before the call that makes it returns. From then on the operating system has it, and the
death of this process does not lose it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trek.client.models import Report

SPOOL = "spool.jsonl"
"""Its name in the folder of the process."""


class Spool:
    """The writing side, for one run of one trial. Not thread-safe; its owner holds a lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SPOOL
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, report: Report) -> None:
        """Write one report. An incomplete line after a crash is skipped when read."""
        os.write(self._descriptor, report.model_dump_json(exclude_defaults=True).encode() + b"\n")

    def clear(self) -> None:
        """Delete all reports, because they were delivered."""
        os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def parse_spool(data: bytes, *, run: int) -> list[Report]:
    """The reports that `run` did not deliver, the oldest first. Reading them twice is harmless: rows count once."""
    reports = [report for line in data.split(b"\n") if line and (report := _parse(line)) is not None]
    return [report for report in reports if report.run == run]


def merged(reports: Sequence[Report], *, run: int) -> Report:
    """Several reports of one run as one, which costs the receiver hardly more than any one of them."""
    progress = [report.progress for report in reports if report.progress is not None]
    return Report(
        run=run,
        metrics=[point for report in reports for point in report.metrics],
        checkpoints=[checkpoint for report in reports for checkpoint in report.checkpoints],
        progress=progress[-1] if progress else None,
    )


def _parse(line: bytes) -> Report | None:
    try:
        return Report.model_validate_json(line)
    except ValueError:
        return None
