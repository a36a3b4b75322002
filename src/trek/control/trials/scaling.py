"""Whether a trial may run with another number of slots; an error says why not."""

from __future__ import annotations

from trek.client.models import ENDED
from trek.control.tables import ExperimentRow, TrialRow
from trek.errors import ConfigError, InputError


def check_scaling(trial: TrialRow, experiment: ExperimentRow, *, slots: int, cluster_slots: int) -> None:
    """InputError if the trial has ended, can never get that many slots, or would train on other batches."""
    if trial.state in ENDED:
        raise InputError(f"trial {trial.id} is already {trial.state} and needs no slots. Fork its experiment instead.")
    if slots > cluster_slots:
        raise InputError(f"trial {trial.id} cannot have {slots} slots: the cluster has {cluster_slots}.")
    _check_limits(trial, experiment, slots=slots)
    _check_batch_size(trial, slots=slots)


def _check_limits(trial: TrialRow, experiment: ExperimentRow, *, slots: int) -> None:
    most = experiment.config["resources"].get("max_slots")
    if most is not None and slots > most:
        raise InputError(
            f"trial {trial.id} cannot have {slots} slots: its experiment may use {most}. "
            f"Raise it with `trek job update {experiment.id} --max-slots {slots}`."
        )
    strategy = experiment.config.get("strategy")
    if (strategy == "solo" and slots > 1) or (strategy == "fsdp" and slots < 2):
        needs = "one slot" if strategy == "solo" else "at least 2 slots"
        raise ConfigError(f"trial {trial.id} cannot have {slots} slots: its strategy {strategy!r} needs {needs}.")


def _check_batch_size(trial: TrialRow, *, slots: int) -> None:
    """Slots share a batch evenly, so that every batch has the same records as before."""
    size = trial.hparams.get("global_batch_size")
    if isinstance(size, int) and size % slots:
        raise InputError(
            f"trial {trial.id} cannot have {slots} slots: its global_batch_size {size} is not divisible by {slots}. "
            f"Possible numbers: {_divisors(size)}."
        )


def _divisors(size: int, *, most: int = 12) -> str:
    found = [count for count in range(1, min(size, 65_536) + 1) if size % count == 0]
    return ", ".join(map(str, found[:most])) + (", …" if len(found) > most else "")
