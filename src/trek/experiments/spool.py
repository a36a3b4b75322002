"""Reports that could not be delivered, kept in a file beside the run until the control plane takes them in."""

from __future__ import annotations

from pathlib import Path

from trek.client.models import Report

_NAME = "spool.jsonl"


def spool(folder: Path, report: Report) -> None:
    """Append one report; a line torn by a crash is skipped when read."""
    with (folder / _NAME).open("a", encoding="utf-8") as file:
        file.write(report.model_dump_json() + "\n")


def take_spool(folder: Path, *, run: int) -> list[Report]:
    """What was spooled for `run`, oldest first. Taking it twice does no harm: rows count once."""
    try:
        lines = (folder / _NAME).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    reports = []
    for line in lines:
        try:
            reports.append(Report.model_validate_json(line))
        except ValueError:
            continue
    return [report for report in reports if report.run == run]
