"""Experiments from Python."""

from __future__ import annotations

import sys

import pytest
import torch

import trek
from trek.client.client import Client
from trek.client.embedded import running_address
from trek.testing.shell import CONFIG, Shell


def test_an_experiment_is_created_awaited_and_read(shell: Shell) -> None:
    shell.json("experiment", "list")  # starts the control plane
    address = running_address(shell.home)
    assert address is not None
    with Client(address) as client:
        searcher = {"name": "random", "metric": "validation_error", "max_trials": 2, "max_length": 16}
        experiment = trek.Experiment({**CONFIG, "searcher": searcher}, shell.model, client=client).wait(timeout_s=90)
        assert experiment.state == "completed"
        best, second = experiment.top_k(2)
        assert best.best_metric is not None
        assert second.best_metric is not None
        assert best.best_metric <= second.best_metric
        frame = experiment.to_pandas(group="validation")
        assert set(frame["trial"]) == {best.id, second.id}
        assert frame["validation_error"].min() == best.best_metric
        assert set(experiment.checkpoint().state_dict()) == {"weight", "bias"}
        assert best.checkpoint is not None
        model = trek.Checkpoint(best.checkpoint[:8], client=client).load(trust_code=True)
        assert type(model).__name__ == "Linear"
        assert torch.equal(model.state_dict()["weight"], experiment.checkpoint().state_dict()["weight"])
        assert "model_def" not in sys.modules, "what the experiment's code is called is nobody else's concern"
        with pytest.raises(trek.TrekError, match="does not exist"):
            trek.Checkpoint("0000", client=client)
        assert trek.Experiment.get(experiment.id, client=client).trials == experiment.trials
        with pytest.raises(trek.TrekError, match="does not exist"):
            trek.Experiment.get(99, client=client)
