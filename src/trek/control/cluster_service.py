"""ClusterService: the control plane as a whole, its slots and how much it holds."""

from __future__ import annotations

from sqlalchemy import func, select

from trek.client import models
from trek.control.store import Store
from trek.control.tables import CheckpointTable, ExperimentRow, MetricTable, TrialRow
from trek.control.trials.cluster_view import NodeView
from trek.control.trials.trial_runner import TrialRunner


class ClusterService:
    """Counts."""

    def __init__(self, store: Store, *, runner: TrialRunner) -> None:
        self._store = store
        self._runner = runner

    def info(self, *, version: str, pid: int) -> models.ClusterInfo:
        """The control plane and what it runs."""
        trials = self.counts()["trials"]
        return models.ClusterInfo(
            version=version,
            pid=pid,
            slots=self.num_slots,
            free_slots=self.num_free_slots,
            running_trials=trials.get("running", 0),
            queued_trials=trials.get("queued", 0),
            active_experiments=self.num_active(),
            engine=self._runner.engine_name,
            nodes=[_node(one) for one in self._runner.nodes()],
        )

    @property
    def num_slots(self) -> int:
        """How many processes can train at once."""
        return self._runner.slots

    @property
    def num_free_slots(self) -> int:
        """How many slots no trial holds."""
        return self._runner.free_slots

    def counts(self) -> dict[str, dict[str, int]]:
        """Experiments and trials by state, and how much is stored."""
        with self._store.reading() as session:
            counts: dict[str, dict[str, int]] = {
                name: dict(session.execute(select(table.state, func.count()).group_by(table.state)).all())
                for name, table in (("experiments", ExperimentRow), ("trials", TrialRow))
            }
            size = select(func.sum(CheckpointTable.num_bytes)).where(~CheckpointTable.is_deleted)
            counts["rows"] = {
                "metrics": session.scalar(select(func.count()).select_from(MetricTable)) or 0,
                "checkpoint_bytes": int(session.scalar(size) or 0),
            }
        return counts

    def num_active(self) -> int:
        """How many experiments are running or queued."""
        with self._store.reading() as session:
            query = select(func.count()).select_from(ExperimentRow)
            return session.scalar(query.where(ExperimentRow.state.in_(["queued", "running"]))) or 0


def _node(view: NodeView) -> models.ClusterNode:
    node = view.node
    return models.ClusterNode(
        name=node.name, address=node.address, slots=node.slots, gpus=node.num_gpus, trials=list(view.trials)
    )
