"""One CSV file per group of metrics, for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from trek.system.disk import storage_errors
from trek.train.loggers.base import Logger, MetricRow

_REMEDY = "Free some space, and continue with resume='latest'."


class CSVLogger(Logger):
    """Writes `<group>.csv` to a folder; a resumed run continues the file. A metric that appears later adds a column.

    Characters of a group that are not valid in a file name are written as %xx.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[str, list[dict[str, object]]] = {}
        self._written: set[str] = set()

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """Create the folder."""
        with storage_errors(self._folder, remedy=_REMEDY):
            self._folder.mkdir(parents=True, exist_ok=True)

    def log_metrics(self, row: MetricRow) -> None:
        """Append a line; rewrite the file if its columns changed."""
        flat = {"batches": row.batches, "epoch": row.epoch, **row.metrics}
        if row.group not in self._rows:
            self._rows[row.group] = self._read(row.group, before=row.batches)
        rows = self._rows[row.group]
        is_wider = row.group not in self._written or not flat.keys() <= rows[0].keys()
        rows.append({**dict.fromkeys(rows[0] if rows else flat, ""), **flat})
        if is_wider:
            columns = list(dict.fromkeys(key for one in rows for key in one))
            self._rows[row.group] = [{key: one.get(key, "") for key in columns} for one in rows]
            self._write(row.group, self._rows[row.group], mode="w")
            self._written.add(row.group)
        else:
            self._write(row.group, rows[-1:], mode="a")

    def _read(self, group: str, *, before: int) -> list[dict[str, object]]:
        """The rows written before the run was resumed, up to the position it resumed from."""
        path = self._path(group)
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return [dict(one) for one in csv.DictReader(file) if int(one["batches"]) < before]

    def _path(self, group: str) -> Path:
        return self._folder / f"{quote(group, safe=' ')}.csv"

    def _write(self, group: str, rows: list[dict[str, object]], *, mode: str) -> None:
        with storage_errors(self._path(group), remedy=_REMEDY), self._path(group).open(mode, newline="") as file:
            writer = csv.DictWriter(file, list(self._rows[group][0]))
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)
