"""The table of epochs: the metrics and the duration of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class EpochTable:
    """One row per epoch: `train_…` and `valid_…` metrics and the duration."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def end_epoch(self, epoch: int, metrics: Mapping[str, float], *, duration_s: float) -> None:
        """Add the row of an epoch that has ended."""
        self.rows.append({"epoch": epoch, **{f"train_{name}": value for name, value in metrics.items()}})
        self.rows[-1]["time_s"] = duration_s

    def add_validation(self, epoch: int, metrics: Mapping[str, float], *, duration_s: float) -> None:
        """Add a validation to the row of the epoch it follows; a later one replaces it."""
        row = next((row for row in self.rows if row["epoch"] == epoch), None)
        if row is None:
            return
        row.update({f"valid_{_bare(name)}": value for name, value in metrics.items()})
        row["time_s"] += duration_s

    def to_pandas(self) -> pd.DataFrame:
        """The table, with durations formatted as `05:03` or `1:02:03`."""
        import pandas as pd

        names = [name for row in self.rows for name in row if name not in ("epoch", "time_s")]
        columns = ["epoch", *dict.fromkeys(names), "time"]
        return pd.DataFrame([{**row, "time": format_duration(row["time_s"])} for row in self.rows], columns=columns)

    def state_dict(self) -> dict[str, Any]:
        """All rows."""
        return {"rows": [dict(row) for row in self.rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.rows = [dict(row) for row in state["rows"]]


def _bare(name: str) -> str:
    """A metric's name without a prefix that repeats the column's `valid_`."""
    for prefix in ("validation_", "valid_", "val_"):
        name = name.removeprefix(prefix)
    return name


def format_duration(seconds: float) -> str:
    """Seconds as `MM:SS`, or `H:MM:SS` from one hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
