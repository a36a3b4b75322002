"""How many slots a trial may have: a number, or the range of an elastic one. Pure."""

from __future__ import annotations

from trek.control.tables import ExperimentRow, TrialRow


def is_elastic(experiment: ExperimentRow) -> bool:
    """Whether the workers of its trials come and go."""
    return isinstance(experiment.config["resources"]["slots_per_trial"], dict)


def slot_range(trial: TrialRow, experiment: ExperimentRow) -> tuple[int, int]:
    """How few and how many slots the trial may have; the same number twice if it is not elastic."""
    wanted = experiment.config["resources"]["slots_per_trial"]
    if is_elastic(experiment):
        return wanted["min"], trial.num_slots or wanted["max"]
    return (trial.num_slots or int(wanted),) * 2
