"""Converts rows of the store into the models of the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import Row

from trek.client import models
from trek.client.wire_values import as_line, clean
from trek.control.damaged_rows import shown
from trek.control.experiments.parsed_config import known_secrets, parsed_config
from trek.control.logs.levels import name_of
from trek.control.tables import CheckpointTable, ExperimentRow, LogTable, MetricTable, TrialRow, WorkerChangeTable
from trek.control.trials.scheduler import DEFAULT_PRIORITY
from trek.control.trials.slot_ranges import is_elastic, slot_range
from trek.experiments.masking import masked, masked_text, redacted, redacted_values


def experiment(row: ExperimentRow, *, num_trials: int, best_hparams: Mapping[str, Any]) -> models.ExperimentRecord:
    """An experiment, as lists show it."""

    def show(row: ExperimentRow) -> models.ExperimentRecord:
        best = masked(best_hparams)
        return models.ExperimentRecord(**_experiment_fields(row), num_trials=num_trials, best_hparams=best)  # type: ignore[arg-type]

    return shown(row, show, instead=_damaged_experiment)


def experiment_details(row: ExperimentRow, trials: list[TrialRow]) -> models.ExperimentDetails:
    """An experiment with its config and trials."""
    return shown(row, lambda row: _experiment_details(row, trials), instead=_damaged_experiment)


def _experiment_details(row: ExperimentRow, trials: list[TrialRow]) -> models.ExperimentDetails:
    return models.ExperimentDetails(
        **_experiment_fields(row),  # type: ignore[arg-type]
        num_trials=len(trials),
        best_hparams=masked(next((one.hparams for one in trials if one.id == row.best_trial), {})),
        config=masked(row.config),
        archive=row.archive,
        provenance=_provenance(row),
        trials=[trial(one, row) for one in trials],
        warnings=row.warnings,
    )


def _damaged_experiment(row: ExperimentRow, reason: str) -> models.ExperimentDetails:
    return models.ExperimentDetails(
        id=row.id,
        name=clean(row.name),
        state=cast(models.State, row.state),
        progress=row.progress,
        metric="",
        smaller_is_better=True,
        searcher="",
        owner=row.owner,
        is_archived=row.is_archived,
        error=f"cannot be shown: {reason}",
        created_s=row.created_s,
        started_s=row.started_s,
        ended_s=row.ended_s,
        config={},
        archive=row.archive,
    )


def trial(row: TrialRow, experiment: ExperimentRow) -> models.TrialRecord:
    """One trial, its length in the unit of its experiment."""
    return shown(row, lambda row: _trial(row, experiment), instead=_damaged_trial)


def _damaged_trial(row: TrialRow, reason: str) -> models.TrialRecord:
    return models.TrialRecord(
        id=row.id,
        experiment_id=row.experiment_id,
        key=row.key,
        state=cast(models.State, row.state),
        hparams={},
        seed=row.seed,
        progress=row.progress,
        batches=row.batches,
        length={},
        error=f"cannot be shown: {reason}",
        created_s=row.created_s,
    )


def _trial(row: TrialRow, experiment: ExperimentRow) -> models.TrialRecord:
    least, most = slot_range(row, experiment)
    return models.TrialRecord(
        id=row.id,
        experiment_id=row.experiment_id,
        key=row.key,
        state=cast(models.State, row.state),
        hparams=masked(row.hparams),
        seed=row.seed,
        progress=row.progress,
        batches=row.batches,
        length={_unit_of(experiment): row.length},
        slots=len(row.slots) if row.num_workers is not None else most,
        slot_range=models.SlotRange(min=least, max=most) if is_elastic(experiment) else None,
        num_workers=row.num_workers,
        restarts=row.restarts,
        run=row.run,
        best_metric=row.best_metric,
        latest_metrics=row.latest_metrics,
        checkpoint=row.checkpoint,
        waiting=_waiting(row, experiment),
        error=shown_text(row.error, experiment),
        traceback=shown_text(row.traceback, experiment),
        failure=cast(models.Failure, row.failure),
        created_s=row.created_s,
        started_s=row.started_s,
        ended_s=row.ended_s,
    )


def job(trial: TrialRow, experiment: ExperimentRow) -> models.Job:
    """A trial as the queue sees it."""
    return shown(trial, lambda trial: _job(trial, experiment), instead=_damaged_job)


def _damaged_job(trial: TrialRow, reason: str) -> models.Job:
    return models.Job(
        trial_id=trial.id,
        experiment_id=trial.experiment_id,
        name="",
        state=cast(models.State, trial.state),
        slots=1,
        priority=DEFAULT_PRIORITY,
        weight=1.0,
        waiting=f"cannot be shown: {reason}",
    )


def _job(trial: TrialRow, experiment: ExperimentRow) -> models.Job:
    resources = experiment.config["resources"]
    return models.Job(
        trial_id=trial.id,
        experiment_id=experiment.id,
        name=experiment.name,
        state=cast(models.State, trial.state),
        slots=len(trial.slots) or slot_range(trial, experiment)[0],
        priority=resources.get("priority") or DEFAULT_PRIORITY,
        weight=resources["weight"],
        waiting=_waiting(trial, experiment),
    )


def metric(row: MetricTable | Row[Any]) -> models.MetricPoint:
    """One report. Its model refuses whatever cannot be sent, so that no second look is needed."""
    try:
        return _metric(row, row.metrics, group=row.group)
    except ValueError:
        return _metric(row, {}, group=as_line(row.group)[:200] or "?")


def _metric(row: MetricTable | Row[Any], metrics: Mapping[str, float | None], *, group: str) -> models.MetricPoint:
    return models.MetricPoint(
        group=group,
        batches=row.batches,
        epoch=row.epoch,
        metrics=dict(metrics),
        time_s=row.time_s,
        duration_s=row.duration_s,
    )


def checkpoint(row: CheckpointTable, *, experiment_id: int) -> models.CheckpointRecord:
    """One checkpoint."""
    return shown(
        row,
        lambda row: _checkpoint(row, row.metrics, experiment_id=experiment_id),
        instead=lambda row, reason: _checkpoint(row, {}, experiment_id=experiment_id),
    )


def _checkpoint(
    row: CheckpointTable, metrics: Mapping[str, float | None], *, experiment_id: int
) -> models.CheckpointRecord:
    return models.CheckpointRecord(
        uuid=row.uuid,
        trial_id=row.trial_id,
        experiment_id=experiment_id,
        batches=row.batches,
        path=masked_text(row.path),
        num_bytes=row.num_bytes,
        metrics=dict(metrics),
        time_s=row.time_s,
        is_deleted=row.is_deleted,
    )


def worker_change(row: WorkerChangeTable) -> models.WorkerChange:
    """One worker of an elastic trial that joined or left."""
    return models.WorkerChange(
        run=row.run,
        time_s=row.time_s,
        generation=row.generation,
        worker=row.worker,
        text=clean(row.text),
        num_workers=row.num_workers,
    )


def log_line(row: LogTable, *, secrets: frozenset[str]) -> models.LogLine:
    """One line, without the secrets of its experiment."""
    return models.LogLine(
        id=row.id,
        trial_id=row.trial_id,
        rank=row.rank,
        run=row.run,
        time_s=row.time_s,
        level=cast(models.Level, name_of(row.level)),
        text=redacted(clean(row.text), secrets),
    )


def _unit_of(row: ExperimentRow) -> str:
    """The unit in which the experiment's trials are measured."""
    return parsed_config(row).searcher.length.unit


def shown_text(text: str, experiment: ExperimentRow) -> str:
    """What a trial wrote, without the secrets of its experiment."""
    return redacted(clean(text), known_secrets(experiment)) if text else ""


def _provenance(row: ExperimentRow) -> dict[str, Any]:
    """Without secrets in the changes that were not committed. Packages may be called anything."""
    packages = {"packages": row.provenance["packages"]} if "packages" in row.provenance else {}
    return {**redacted_values(masked(row.provenance), known_secrets(row)), **packages}


def _waiting(trial: TrialRow, experiment: ExperimentRow) -> str:
    """What a trial waits for: a queued one for slots, a running one perhaps for room on a cluster.

    The scheduler skips the trials of paused experiments.
    """
    if trial.state != "queued":
        return trial.waiting if trial.state == "running" else ""
    return "its experiment is paused" if experiment.wanted == "pause" else trial.waiting


def _experiment_fields(row: ExperimentRow) -> dict[str, object]:
    searcher = row.config["searcher"]
    return {
        "id": row.id,
        "name": row.name,
        "description": masked_text(clean(row.description)),
        "state": row.state,
        "progress": row.progress,
        "metric": searcher["metric"],
        "smaller_is_better": searcher["smaller_is_better"],
        "searcher": searcher["name"],
        "hyperparameters": masked(row.config["hyperparameters"]),
        "best_metric": row.best_metric,
        "best_trial": row.best_trial,
        "labels": row.labels,
        "owner": row.owner,
        "is_archived": row.is_archived,
        "parent": row.parent,
        "error": shown_text(row.error, row),
        "failure": row.failure,
        "created_s": row.created_s,
        "started_s": row.started_s,
        "ended_s": row.ended_s,
    }
