"""The table of epochs: what was learned in each, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class EpochTable:
    """One row per epoch: `train_…` and `valid_…` metrics and the time."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def end_epoch(self, epoch: int, metrics: Mapping[str, float], *, duration_s: float) -> None:
        """An epoch of training is over."""
        self.rows.append({"epoch": epoch, **{f"train_{name}": value for name, value in metrics.items()}})
        self.rows[-1]["time_s"] = duration_s

    def add_validation(self, epoch: int, metrics: Mapping[str, float], *, duration_s: float) -> None:
        """A validation belongs to the epoch it follows; the last one of an epoch counts."""
        row = next((row for row in self.rows if row["epoch"] == epoch), None)
        if row is None:
            return
        row.update({f"valid_{_bare(name)}": value for name, value in metrics.items()})
        row["time_s"] += duration_s

    def to_pandas(self) -> pd.DataFrame:
        """The table with the time as it is read: `05:03`, `1:02:03`."""
        import pandas as pd

        names = [name for row in self.rows for name in row if name not in ("epoch", "time_s")]
        columns = ["epoch", *dict.fromkeys(names), "time"]
        return pd.DataFrame([{**row, "time": clock(row["time_s"])} for row in self.rows], columns=columns)

    def state_dict(self) -> dict[str, Any]:
        """All rows."""
        return {"rows": [dict(row) for row in self.rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take `state_dict` back."""
        self.rows = [dict(row) for row in state["rows"]]


def _bare(name: str) -> str:
    """A metric's name without the word that the column says already."""
    for prefix in ("validation_", "valid_", "val_"):
        name = name.removeprefix(prefix)
    return name


def clock(seconds: float) -> str:
    """Seconds as `MM:SS`, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
