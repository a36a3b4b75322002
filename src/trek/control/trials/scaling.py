"""Whether a trial may run with another number of slots; an error says why not."""

from __future__ import annotations

from trek.client.models import ENDED
from trek.control.experiments.parsed_config import parsed_config
from trek.control.tables import ExperimentRow, TrialRow
from trek.errors import ConfigError, InputError
from trek.strategies.strategy_registry import STRATEGIES


def check_scaling(trial: TrialRow, experiment: ExperimentRow, *, slots: int, cluster_slots: int | None) -> None:
    """InputError if the trial has ended, can never get that many slots, or cannot use them.

    `cluster_slots` is None for a cluster that can grow.
    """
    if trial.state in ENDED:
        raise InputError(f"trial {trial.id} is already {trial.state} and needs no slots. Fork its experiment instead.")
    if cluster_slots is not None and slots > cluster_slots:
        raise InputError(f"trial {trial.id} cannot have {slots} slots: the cluster has {cluster_slots}.")
    _check_range(trial, experiment, slots=slots)
    _check_limits(trial, experiment, slots=slots)
    _check_batch_size(trial, slots=slots)


def _check_range(trial: TrialRow, experiment: ExperimentRow, *, slots: int) -> None:
    elastic = parsed_config(experiment).resources.elastic
    if elastic is not None and not elastic.min <= slots <= elastic.max:
        raise InputError(
            f"trial {trial.id} cannot have {slots} slots: its experiment allows {elastic.min} to {elastic.max} "
            "(resources.slots_per_trial). Choose a number in that range."
        )


def _check_limits(trial: TrialRow, experiment: ExperimentRow, *, slots: int) -> None:
    most = experiment.config["resources"].get("max_slots")
    if most is not None and slots > most:
        raise InputError(
            f"trial {trial.id} cannot have {slots} slots: its experiment may use {most}. "
            f"Raise it with `trek job update {experiment.id} --max-slots {slots}`."
        )
    strategy = parsed_config(experiment).training.strategy
    if strategy is not None:
        try:
            STRATEGIES.load(strategy).check_workers(slots)
        except ConfigError as error:
            raise ConfigError(f"trial {trial.id} cannot have {slots} slots: {error}") from None


def _check_batch_size(trial: TrialRow, *, slots: int) -> None:
    """Every slot needs at least one record of a batch."""
    size = trial.hparams.get("global_batch_size")
    if isinstance(size, int) and size < slots:
        raise InputError(
            f"trial {trial.id} cannot have {slots} slots: its global_batch_size {size} is smaller. "
            f"Give it at most {size}."
        )
