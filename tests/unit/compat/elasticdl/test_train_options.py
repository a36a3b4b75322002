"""ElasticDL's options of training, as settings of `trek.fit`."""

from __future__ import annotations

from typing import Any

import pytest

import trek
from trek.compat.elasticdl.train_options import TrainOptions
from trek.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"strategy": None, "workers": 1, "servers": 0, "strategy_options": {}}),
        ({"num_workers": 4}, {"strategy": "ddp", "workers": 4, "servers": 0}),
        ({"num_ps_pods": 2}, {"strategy": "ps", "servers": 2}),
        ({"distribution_strategy": "ParameterServerStrategy"}, {"strategy": "ps", "servers": 1}),
        ({"job_name": "a", "checkpoint_dir": "there"}, {"name": "a", "checkpoint_dir": "there"}),
        (
            {"num_epochs": 3, "evaluation_steps": 5},
            {"max_length": trek.epochs(3), "validation_period": trek.batches(5)},
        ),
        ({"keep_checkpoint_max": 3, "log_loss_steps": 7}, {"keep_last": 3, "report_period": 7}),
        ({"keep_checkpoint_max": 0}, {"keep_every": 1}),
    ],
)
def test_what_to_fit_with(options: dict[str, Any], expected: dict[str, Any]) -> None:
    made = TrainOptions(**options).fit_settings()
    assert {name: made[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"mode": "async", "pull_period": 1, "grads_to_wait": 1, "version_tolerance": 0}),
        ({"grads_to_wait": 2, "sync_version_tolerance": 3}, {"grads_to_wait": 2, "version_tolerance": 3}),
        ({"use_async": True}, {"scale_lr_by_staleness": False, "pull_period": 1}),
        ({"use_async": True, "lr_staleness_modulation": True}, {"scale_lr_by_staleness": True}),
        ({"use_async": True, "get_model_steps": 4}, {"pull_period": 4}),
    ],
)
def test_servers_reject_old_gradients_unless_training_is_asynchronous(
    options: dict[str, Any], expected: dict[str, Any]
) -> None:
    made = TrainOptions(num_workers=2, num_ps_pods=1, **options).fit_settings()["strategy_options"]
    assert {name: made[name] for name in expected} == expected
    assert ("version_tolerance" in made) != bool(options.get("use_async"))


def test_a_batch_is_of_one_worker() -> None:
    assert TrainOptions(minibatch_size=64, num_workers=3).global_batch_size == 192


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution_strategy": "Local", "num_workers": 2}, "Local trains in one process, got --num_workers 2"),
        ({"distribution_strategy": "Local", "num_ps_pods": 1}, "Use ParameterServerStrategy"),
        ({"distribution_strategy": "AllreduceStrategy", "num_ps_pods": 2}, "has no servers, got --num_ps_pods 2"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainOptions(**options).fit_settings()
