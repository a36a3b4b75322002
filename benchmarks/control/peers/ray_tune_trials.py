"""Trivial trials with Ray Tune, one actor process per trial, two at a time: total seconds, as JSON.

Starting Ray is not counted. If torch is installed, a trial loads it and trains a batch, like the trials of Trek.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray import tune

HAS_TORCH = importlib.util.find_spec("torch") is not None


def trivial(config: dict[str, Any]) -> dict[str, float]:
    """One trial; what it returns is its one report."""
    if HAS_TORCH:
        import torch

        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
        model(torch.ones(4, 1)).square().mean().backward()
        optimizer.step()
        return {"error": float(model(torch.ones(4, 1)).square().mean())}
    return {"error": config["lr"] ** 2}


def main(num_trials: int, folder: str) -> None:
    """Run them and print."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(
        trivial,
        param_space={"lr": tune.loguniform(1e-4, 1e-1)},
        tune_config=tune.TuneConfig(
            metric="error", mode="min", num_samples=num_trials, max_concurrent_trials=2, reuse_actors=False
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    began = time.perf_counter()
    results = tuner.fit()
    seconds = time.perf_counter() - began
    assert len(results) == num_trials
    assert results.num_errors == 0
    ray.shutdown()
    print(json.dumps({"seconds": seconds, "has_torch": HAS_TORCH, "version": importlib.metadata.version("ray")}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
