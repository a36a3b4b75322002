"""Spool: what a trial has to tell, on disk until the control plane has it, so that even a killed trial is heard out.

Lines go to the file before the call that reports them returns. They are in the hands of the system then: the death of
this process does not lose them.
"""

from __future__ import annotations

import os
from pathlib import Path

from trek.client.models import Report

SPOOL = "spool.jsonl"
"""Its name in the folder of the process."""


class Spool:
    """The writing side, of one run of one trial. Not safe for several threads; its owner has the lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SPOOL
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, report: Report) -> None:
        """Keep one report; a line torn by a crash is skipped when read."""
        os.write(self._descriptor, report.model_dump_json(exclude_defaults=True).encode() + b"\n")

    def clear(self) -> None:
        """Everything kept so far was delivered."""
        os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def parse_spool(data: bytes, *, run: int) -> list[Report]:
    """What was not delivered by `run`, oldest first. Taking it twice does no harm: rows count once."""
    lines = data.decode("utf-8", errors="replace").splitlines()
    reports = [report for line in lines if (report := _parse(line)) is not None]
    return [report for report in reports if report.run == run]


def _parse(line: str) -> Report | None:
    try:
        return Report.model_validate_json(line)
    except ValueError:
        return None
