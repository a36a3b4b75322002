"""Seconds a trial: a random search by Trek's control plane on Ray beside Ray Tune, on one cluster, in turns.

    python benchmarks/ray/trials.py [--rounds 2] [--trials 8]

Prints one JSON object. A trial trains a small network for 20 batches and reports its loss once. As many trials run at
once as the cluster has CPUs. Trek's time includes `trek experiment create`, from packing the model folder to the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import yaml
from peer import environment

NUM_CPUS = 2
NUM_BATCHES = 20
MODEL = """
import torch, trek
from torch import nn

class Points(trek.Trial):
    def build_model(self):
        return nn.Linear(64, 10)
    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.context.get_hparams()["lr"])
    def _data(self):
        rows = torch.utils.data.TensorDataset(torch.randn(640, 64), torch.randint(10, (640,)))
        return trek.DataLoader(rows, 32)
    build_training_data_loader = build_validation_data_loader = _data
    def train_batch(self, batch, model):
        return {"loss": nn.functional.cross_entropy(model(batch[0]), batch[1])}
    def evaluate_batch(self, batch, model):
        return {"validation_loss": nn.functional.cross_entropy(model(batch[0]), batch[1])}
"""


def trek_seconds(num_trials: int, *, address: str, home: Path) -> float:
    """Seconds of a search by Trek."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model.mkdir()
        (model / "model_def.py").write_text(MODEL)
        config = {
            "entrypoint": "model_def:Points",
            "hyperparameters": {"lr": {"type": "double", "minval": 0.01, "maxval": 0.1}, "global_batch_size": 32},
            "searcher": {
                "name": "random",
                "metric": "validation_loss",
                "max_trials": num_trials,
                "max_length": {"batches": NUM_BATCHES},
            },
        }
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        env = {**os.environ, "TREK_HOME": str(home), "TREK_ENGINE": "ray", "RAY_ADDRESS": address}
        began = time.perf_counter()
        command = [sys.executable, "-m", "trek", "experiment", "create", str(path), str(model)]
        subprocess.run(command, env=env, check=True, capture_output=True)
        return time.perf_counter() - began


def _tune_trial(config: dict[str, Any]) -> None:
    import torch
    from ray import tune
    from torch import nn

    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    rows, labels = torch.randn(640, 64), torch.randint(10, (640,))
    for index in range(NUM_BATCHES):
        part = slice(32 * index, 32 * index + 32)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows[part]), labels[part]).backward()
        optimizer.step()
    tune.report({"validation_loss": nn.functional.cross_entropy(model(rows), labels).item()})


def tune_seconds(num_trials: int) -> float:
    """Seconds of a search by Ray Tune."""
    from ray import tune

    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(_tune_trial, {"cpu": 1}),
            param_space={"lr": tune.uniform(0.01, 0.1)},
            tune_config=tune.TuneConfig(num_samples=num_trials, metric="validation_loss", mode="min"),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        began = time.perf_counter()
        tuner.fit()
        return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=8)
    args = parser.parse_args()
    started = ray.init("local", num_cpus=NUM_CPUS, include_dashboard=False, log_to_driver=False)
    address = started.address_info["gcs_address"]
    taken: dict[str, list[float]] = {"trek": [], "ray_tune": []}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(args.rounds):
            taken["trek"].append(trek_seconds(args.trials, address=address, home=Path(home) / "home") / args.trials)
            taken["ray_tune"].append(tune_seconds(args.trials) / args.trials)
        stop = [sys.executable, "-m", "trek", "cluster", "stop"]
        subprocess.run(stop, env={**os.environ, "TREK_HOME": f"{home}/home"}, check=False, capture_output=True)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    result = {
        "seconds_per_trial": medians,
        "each_round": taken,
        "ratio": medians["trek"] / medians["ray_tune"],
        "target": 0.5,
        "trials": args.trials,
        "rounds": args.rounds,
        **environment(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
