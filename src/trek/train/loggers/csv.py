"""One CSV file per group of metrics, for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from trek.train.loggers.base import Logger, MetricRow


class CSVLogger(Logger):
    """Writes `<group>.csv` into a folder. A metric that appears later than the first row widens the file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[str, list[dict[str, object]]] = {}

    def start(self, *, name: str, hparams: Mapping[str, object]) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def log_metrics(self, row: MetricRow) -> None:
        """Append, or write the file anew where its columns changed."""
        flat = {"batches": row.batches, "epoch": row.epoch, **row.metrics}
        rows = self._rows.setdefault(row.group, [])
        is_wider = not rows or not flat.keys() <= rows[0].keys()
        rows.append({**dict.fromkeys(rows[0] if rows else flat, ""), **flat})
        if is_wider:
            columns = list(dict.fromkeys(key for one in rows for key in one))
            self._rows[row.group] = [{key: one.get(key, "") for key in columns} for one in rows]
            self._write(row.group, self._rows[row.group], mode="w")
        else:
            self._write(row.group, rows[-1:], mode="a")

    def _write(self, group: str, rows: list[dict[str, object]], *, mode: str) -> None:
        with (self._folder / f"{group}.csv").open(mode, newline="") as file:
            writer = csv.DictWriter(file, list(self._rows[group][0]))
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)
