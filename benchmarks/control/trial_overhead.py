"""Overhead of a trial beyond its training: an experiment of trivial trials, compared with Optuna and Ray Tune.

    python benchmarks/control/trial_overhead.py --trials 200 [--peers PYTHON]

All run two trials at a time, each in a process of its own that trains a batch and reports one number; Trek and Optuna
keep what they did in SQLite. Trek's trials save a checkpoint besides. The floor is the same training as bare processes,
two at a time, which load torch. Trek runs fresh processes first, with TREK_WARM_START=0, and then warm ones, after an
experiment of two trials that starts the warm parent and is told apart ("cold"). Peers run where they are installed, in
this Python or the one that --peers names, and are left out by name elsewhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MODEL = """
import torch, trek

class Trivial(trek.Trial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
    def build_training_data_loader(self):
        return trek.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)), batch_size=4)
    build_validation_data_loader = build_training_data_loader
    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}
    def evaluate_batch(self, batch):
        return {"error": float(self.model(batch[0]).square().mean())}
"""
CONFIG = """
entrypoint: model_def:Trivial
hyperparameters: {{lr: {{type: log, minval: -4, maxval: -1}}, global_batch_size: 4}}
searcher: {{name: random, metric: error, max_length: {{batches: 1}}, max_trials: {trials}, max_concurrent_trials: 2}}
"""
PEER = """
import sys, torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
model(torch.ones(4, 1)).square().mean().backward()
optimizer.step()
print(float(model(torch.ones(4, 1)).square().mean()))
"""


def main() -> None:
    """Run all in turn and print the seconds per trial and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    settings = parser.parse_args()
    trials = settings.trials
    with tempfile.TemporaryDirectory() as folder:
        floor = bare(trials) / trials
        print(f"the training as a bare process: {floor:.3f} s a trial")
        fresh = with_trek(Path(folder) / "fresh", trials, warm=False)[1] / trials
        print(f"trek, fresh: {fresh:.3f} s a trial, {fresh - floor:.3f} s beyond the process")
        cold, warm = with_trek(Path(folder) / "warm", trials, warm=True)
        ours = warm / trials
        print(f"trek, warm: {ours:.3f} s a trial, {ours / floor:.2f} of the process; the first two, cold: {cold:.3f} s")
        if importlib.util.find_spec("optuna") is None:
            print("optuna: skipped: not installed")
        else:
            show("optuna, SQLite, a process per trial", with_optuna(Path(folder), trials) / trials, ours, floor)
        ray = with_ray_tune(Path(folder), trials, settings.peers)
        if isinstance(ray, str):
            print(f"ray tune: skipped: {ray}")
        else:
            torch = "" if ray["has_torch"] else ", without torch, which is not installed there"
            show(f"ray tune {ray['version']}, an actor per trial{torch}", ray["seconds"] / trials, ours, floor)


def show(name: str, theirs: float, ours: float, floor: float) -> None:
    """A peer's line."""
    print(
        f"{name}: {theirs:.3f} s a trial, {theirs - floor:.3f} s beyond the process; trek / peer: {ours / theirs:.2f}"
    )


def bare(trials: int) -> float:
    """Seconds of the processes alone."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: _run_peer_trial(0.1), range(trials)))
    return time.perf_counter() - start


def with_trek(folder: Path, trials: int, *, warm: bool) -> tuple[float, float]:
    """Seconds of an experiment of two trials and of one of `trials`, the control plane already started."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "model_def.py").write_text(MODEL)
    env = {**os.environ, "TREK_HOME": str(folder / "home"), "TREK_SLOTS": "2", "TREK_WARM_START": str(int(warm))}
    trek = [sys.executable, "-m", "trek"]
    subprocess.run([*trek, "experiment", "list"], env=env, check=True, capture_output=True)
    seconds = []
    for count in (2, trials):
        (folder / "config.yaml").write_text(CONFIG.format(trials=count))
        start = time.perf_counter()
        create = [*trek, "experiment", "create", str(folder / "config.yaml"), str(model)]
        subprocess.run(create, env=env, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    subprocess.run([*trek, "cluster", "stop"], env=env, check=True, capture_output=True)
    return seconds[0], seconds[1]


def with_optuna(folder: Path, trials: int) -> float:
    """Seconds of a study, two threads that each wait for a process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / 'optuna.db'}", sampler=optuna.samplers.RandomSampler(seed=0)
    )

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        return _run_peer_trial(lr)

    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda count: study.optimize(objective, n_trials=count), [trials - trials // 2, trials // 2]))
    return time.perf_counter() - start


def with_ray_tune(folder: Path, trials: int, python: str) -> Any:
    """The result of Ray Tune's script, or its error message."""
    script = Path(__file__).parent / "peers" / "ray_tune_trials.py"
    command = [python, str(script), str(trials), str(folder / "ray")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 else (lines or ["no error message"])[-1]


def _run_peer_trial(lr: float) -> float:
    done = subprocess.run([sys.executable, "-c", PEER, str(lr)], check=True, capture_output=True, text=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
