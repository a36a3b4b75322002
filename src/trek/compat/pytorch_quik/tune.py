"""`pq.tune`: a search over the arguments of a training function with Ray Tune, over `trek.integrations.ray_tune`."""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import yaml

from trek.compat.pytorch_quik.arg import complete, update_args
from trek.compat.pytorch_quik.ddp import reporting, train_here
from trek.compat.pytorch_quik.utils import gpus
from trek.errors import ConfigError, InputError
from trek.integrations.ray_tune import run_function, space


def get_tune_config(filename: str | Path) -> dict[str, Any]:
    """The search space in a YAML file, such as `bs: {choice: {categories: [8, 16]}}`."""
    path = Path(filename)
    if not path.is_file():
        raise InputError(f"config {str(path)!r} not found.")
    found = yaml.safe_load(path.read_text())
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path} must be a mapping of arguments to what they may be, got {type(found).__name__}.")
    return space(found)


def run_ddp_tune(
    train_fcn: Callable[..., Any],
    args: Namespace,
    tune_config: Mapping[str, Any],
    tune_scheduler: Any = None,
    *,
    metric: str = "valid_loss",
    mode: str = "min",
) -> Any:
    """Train `args.num_samples` times with arguments from `tune_config`; the `ExperimentAnalysis` of Ray Tune.

    Each trial has a GPU of its own, or a CPU, runs in the current folder, and calls `train_fcn` as `traverse` does,
    with the chosen arguments; a parameter `config` gets those alone. The losses of every epoch are reported. With
    `--use_mlflow`, the runs of all trials are nested in one run.
    """
    chosen = complete(args)
    if chosen.num_samples < 1:
        raise InputError(f"args.num_samples must be at least 1, got {chosen.num_samples}.")
    own = Namespace(**vars(chosen))
    folder = Path.cwd()
    update_args(own, {"use_ray_tune": True, "parent_run": getattr(chosen, "parent_run", None) or _parent(chosen)})

    def trial(config: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
        given = Namespace(**vars(own))
        update_args(given, {**config, "tune_config": config})
        with chdir(folder), reporting(lambda row: report(dict(row))):
            train_here(train_fcn, given)

    resources = {"cpu": 1, "gpu": 1} if gpus() else {"cpu": 1}
    return run_function(
        trial,
        tune_config,
        metric=metric,
        mode=mode,
        num_samples=chosen.num_samples,
        scheduler=tune_scheduler,
        resources=resources,
    )


def _parent(args: Namespace) -> str:
    """The run that those of the trials are nested in: one for each search."""
    return f"{args.experiment}-{uuid.uuid4().hex[:8]}"
