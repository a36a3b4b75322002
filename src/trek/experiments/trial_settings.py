"""The settings of one trial: the config's `training`, and those given by the searcher and other sections."""

from __future__ import annotations

from typing import Any

from trek.client.models import Assignment
from trek.experiments.config import ExperimentConfig
from trek.train.loggers.base import JobIdentity
from trek.train.settings import TrainSettings


def trial_settings(config: ExperimentConfig, assignment: Assignment) -> TrainSettings:
    """All settings of a trial of `config`."""
    return TrainSettings.of(config.training, **fixed_settings(config, assignment))


def fixed_settings(config: ExperimentConfig, assignment: Assignment) -> dict[str, Any]:
    """The settings that the code of a trial cannot change, neither in a Trial nor in a command."""
    is_open = config.command is not None and config.searcher.max_length is None
    return {
        **({} if is_open else {"max_length": assignment.length}),
        "validation_lengths": (*config.training.validation_lengths, *assignment.validation_lengths),
        "checkpoint_period": config.training.checkpoint_period,
        "checkpoint_policy": config.training.checkpoint_policy,
        "seed": assignment.seed,
        "metric": config.searcher.metric,
        "smaller_is_better": config.searcher.smaller_is_better,
        "show_progress": False,
    }


def job_identity(assignment: Assignment) -> JobIdentity:
    """The trial, as loggers identify it."""
    return JobIdentity(
        key=assignment.owner,
        trial_id=assignment.trial_id,
        experiment_id=assignment.experiment_id,
        experiment_key=assignment.experiment_key,
        experiment_name=assignment.config.get("name", ""),
    )
