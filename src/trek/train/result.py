"""Result: the metrics and checkpoints of a finished run."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.train.checkpointing.checkpoint_folder import CheckpointFolder
from trek.train.loop.stopping import Reason
from trek.train.metrics.goal import Goal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Result:
    """Metrics and checkpoints of one run. Shown in a few lines, and in a notebook with a table of its epochs."""

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

    def __repr__(self) -> str:
        parts = [repr(str(self.path)), f"{len(self.epochs)} epoch{'' if len(self.epochs) == 1 else 's'}"]
        if (best := self.best) is not None:
            name = self.goal.choose(_values(best)) or ""
            parts.append(f"best {name} {best[name]:.6g} after {best['batches']} batches")
        if self.stop_reason:
            parts.append(f"stopped: {self.stop_reason}")
        return f"Result({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """The same with the epochs as a table, for notebooks; long ones are cut as pandas cuts them."""
        import pandas as pd

        return f"<p>{html.escape(repr(self))}</p>{pd.DataFrame(self.epochs).to_html(max_rows=20)}"

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
