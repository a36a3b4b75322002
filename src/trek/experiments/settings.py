"""How one trial trains: from the config and what the searcher asked of it, in the words of `trek.train`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from trek.client.models import Assignment
from trek.experiments.checkpoint_address import fetch_checkpoint
from trek.experiments.config import ExperimentConfig
from trek.search.searcher_settings import LengthSetting
from trek.train.checkpointing.stores import open_storage
from trek.train.length import Length
from trek.train.session import SessionSettings


def session_settings(config: ExperimentConfig, assignment: Assignment) -> SessionSettings:
    """How to train, from the config and what the searcher asked of this trial."""
    storage, optimizations = config.checkpoint_storage, config.optimizations
    return SessionSettings(
        max_length=_length(assignment.length),
        validation_period=_length(assignment.validation_period) if assignment.validation_period else None,
        checkpoint_period=_checkpoint_period(config, assignment),
        report_period=config.scheduling_unit,
        strategy=config.effective_strategy,
        precision=config.precision,
        accumulate=optimizations.aggregation_frequency,
        clip_norm=optimizations.clip_norm,
        seed=assignment.seed,
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
        keep_best=storage.save_trial_best,
        keep_last=max(storage.save_trial_latest, 1),
        records_per_epoch=config.records_per_epoch,
        initial_validation=config.perform_initial_validation,
        show_progress=False,
    )


def start_of(assignment: Assignment) -> Path | Literal["latest"]:
    """The trial's own newest checkpoint, told of or not; before there is one, the one it was told to start from."""
    storage = open_storage(assignment.checkpoint_dir)
    if assignment.resume is None or storage.names():
        return "latest"
    return fetch_checkpoint(assignment.resume)


def _checkpoint_period(config: ExperimentConfig, assignment: Assignment) -> Length | None:
    """The config's; with the policy `all`, as often as the trial is validated."""
    if config.min_checkpoint_period is not None:
        return _length(config.min_checkpoint_period)
    if config.checkpoint_policy == "all":
        return _length(assignment.validation_period) if assignment.validation_period else Length(1, "epochs")
    return None


def _length(raw: Mapping[str, int] | LengthSetting) -> Length:
    setting = raw if isinstance(raw, LengthSetting) else LengthSetting.model_validate(dict(raw))
    return Length(setting.count, setting.unit)
