"""Which checkpoint of an experiment is the best: the one answer that commands, forks and flows use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trek.client.models import BestReason
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import CheckpointTable, ExperimentRow, TrialRow
from trek.experiments.config import ExperimentConfig


@dataclass(frozen=True)
class Candidate:
    """A stored checkpoint. A smaller `score` is better; None where the metric is missing or not finite."""

    uuid: str
    trial_id: int
    batches: int
    score: float | None
    time_s: float = 0.0


def choose_best(candidates: Sequence[Candidate], *, best_trial: int | None) -> tuple[str, BestReason] | None:
    """The uuid of the best checkpoint, and why it is; None without candidates. Pure.

    The best score wins, and of equal scores the one with fewer batches. Without any score it is the newest of the best
    trial, or of all trials where that one has none.
    """
    scored = [c for c in candidates if c.score is not None]
    if scored:
        return min(scored, key=lambda c: (c.score, c.batches, c.trial_id, c.uuid)).uuid, "best_metric"
    own = [c for c in candidates if c.trial_id == best_trial]
    if own:
        return _newest(own).uuid, "newest_of_best_trial"
    return (_newest(candidates).uuid, "newest") if candidates else None


def best_checkpoint(session: Session, experiment: ExperimentRow) -> tuple[CheckpointTable, BestReason] | None:
    """The best of the experiment's checkpoints that are still stored, and why it is."""
    stored = [candidate for _, candidate in stored_candidates(session, experiment)]
    best = choose_best(stored, best_trial=experiment.best_trial)
    return (session.get_one(CheckpointTable, best[0]), best[1]) if best is not None else None


def best_of_trial(session: Session, experiment: ExperimentRow, trial_id: int) -> tuple[str, BestReason] | None:
    """The uuid of the best of one trial's checkpoints that are still stored, and why it is."""
    own = [one for _, one in stored_candidates(session, experiment) if one.trial_id == trial_id]
    return choose_best(own, best_trial=trial_id)


def stored_candidates(session: Session, experiment: ExperimentRow) -> list[tuple[CheckpointTable, Candidate]]:
    """The experiment's checkpoints that are still stored."""
    config = parsed_config(experiment)
    rows = session.scalars(
        select(CheckpointTable)
        .join(TrialRow)
        .where(TrialRow.experiment_id == experiment.id, ~CheckpointTable.is_deleted)
    )
    return [(row, _candidate(row, config)) for row in rows]


def _candidate(row: CheckpointTable, config: ExperimentConfig) -> Candidate:
    value = row.metrics.get(config.searcher.metric)
    sign = 1 if config.searcher.smaller_is_better else -1
    score = sign * value if value is not None and math.isfinite(value) else None
    return Candidate(row.uuid, row.trial_id, row.batches, score, row.time_s)


def _newest(candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda c: (c.batches, c.time_s, c.uuid))
