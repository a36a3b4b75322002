"""Result: the metrics and checkpoints of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.loop.stopping import Reason
from trek.train.metrics.goal import Goal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """Metrics and checkpoints of one run."""

    path: Path
    """The run's folder, with its metrics and checkpoints."""
    metrics: list[dict[str, Any]]
    """One flat row per report: group, batches, epoch, and the metrics by name."""
    epochs: list[dict[str, Any]]
    """One row per epoch."""
    stop_reason: Reason = ""
    checkpoint: CheckpointFolder | None = None
    """The last checkpoint."""
    best_checkpoint: CheckpointFolder | None = None
    goal: Goal = field(default_factory=Goal)

    @property
    def best(self) -> dict[str, Any] | None:
        """The validation row with the best metric; None if there was no validation."""
        rows = [row for row in self.metrics if row["group"] == "validation"]
        scored = [(score, i) for i, row in enumerate(rows) if (score := self.goal.score(_values(row))) is not None]
        return rows[min(scored)[1]] if scored else None

    def to_pandas(self) -> pd.DataFrame:
        """The metrics as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.metrics)


def flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a MetricRow and its metrics in one dict."""
    return {"group": row["group"], "batches": row["batches"], "epoch": row["epoch"], **row["metrics"]}


def _values(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in ("group", "batches", "epoch")}
