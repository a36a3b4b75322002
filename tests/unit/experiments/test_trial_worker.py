"""What a trial's process makes of its assignment."""

from __future__ import annotations

from typing import Any

import pytest

from trek.client.models import Assignment
from trek.errors import InputError
from trek.experiments.config import ExperimentConfig
from trek.experiments.trial_process import TrialProcess
from trek.experiments.trial_settings import trial_settings
from trek.train.length import batches

RAW: dict[str, Any] = {
    "entrypoint": "a:B",
    "searcher": {"name": "single", "metric": "error", "max_steps": 2, "smaller_is_better": False},
}


def settings(*validation_lengths: dict[str, int], **changes: Any) -> Any:
    config = ExperimentConfig.parse({**RAW, **changes})
    assignment = Assignment(
        trial_id=1,
        experiment_id=1,
        run=1,
        config=config.normal_form(),
        hparams={},
        seed=7,
        length={"batches": 200},
        validation_lengths=list(validation_lengths),
        archive="",
        checkpoint_dir="",
        name="x",
    )
    return trial_settings(config, assignment)


def test_the_config_becomes_settings() -> None:
    made = settings(
        {"batches": 50},
        min_validation_period={"batches": 75},
        resources={"slots_per_trial": 2},
        optimizations={"aggregation_frequency": 4, "clip_norm": 1.5, "mixed_precision": "O1"},
        scheduling_unit=25,
    )
    assert (made.max_length, made.checkpoint_period) == (batches(200), None)
    assert (made.validation_lengths, made.validation_period) == ((batches(50),), batches(75))
    assert (made.precision, made.accumulate, made.clip_norm) == ("bf16", 4, 1.5)
    assert (made.metric, made.smaller_is_better, made.seed) == ("error", False, 7)
    assert (made.checkpoint_policy, made.report_period) == ("best", 25)


@pytest.mark.parametrize("policy", ["best", "all", "none"])
def test_the_policy_says_after_which_validations_to_save(policy: str) -> None:
    """`none` had no effect, and `all` saved by a period of its own, beside the validations of a search."""
    made = settings({"batches": 50}, checkpoint_policy=policy)
    assert (made.checkpoint_policy, made.checkpoint_period) == (policy, None)
    assert settings(min_checkpoint_period=10, checkpoint_policy=policy).checkpoint_period == batches(1000)


def test_a_process_that_trek_did_not_start_is_told_so() -> None:
    with pytest.raises(InputError, match="TREK_TRIAL_ID is not set"):
        TrialProcess.from_env({})
