"""`pq.arg`: argument groups of a training script, with pytorch-quik's names and defaults.

Defaults may be given by a script: `add_learn_args(parser, {"learning_rate": 1.5e-6})`. Two differ from pytorch-quik's:
mixed precision is off until it is asked for, as its README says, and can be switched off again.
"""

from __future__ import annotations

import getpass
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from typing import Any

from trek.compat.pytorch_quik.utils import gpus
from trek.errors import InputError

_Options = dict[str, dict[str, Any]]


def beta_type(strings: str) -> tuple[float, float]:
    """The two betas of an optimizer, written `0.9,0.99` or `(0.9, 0.99)`."""
    parts = strings.strip("()[] ").split(",")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise ArgumentTypeError(f"betas must be two numbers such as 0.9,0.99, got {strings!r}") from None
    return low, high


_DDP: _Options = {
    "nr": {"type": int, "default": 0, "help": "rank of this node among the nodes"},
    "nodes": {"type": int, "default": 1, "help": "number of nodes"},
    "gpus": {"type": int, "default": None, "help": "number of GPUs on each node; by default those found"},
    "num_workers": {"type": int, "default": 0, "help": "number of data loading processes for each training process"},
}
_LEARN: _Options = {
    "epochs": {"type": int, "default": 5, "help": "passes over the training data"},
    "mixed_precision": {"action": BooleanOptionalAction, "default": False, "help": "automatic mixed precision"},
    "bs": {"type": int, "default": 50_000, "help": "samples per batch on each process"},
    "learning_rate": {"type": float, "default": 1e-5, "dest": "lr", "help": "learning rate"},
    "weight_decay": {"type": float, "default": 0.0, "help": "weight decay"},
    "betas": {"type": beta_type, "default": (0.9, 0.99), "help": "Adam's betas"},
    "eps": {"type": float, "default": 1e-8, "help": "Adam's eps"},
    "find_unused_parameters": {"action": BooleanOptionalAction, "default": False, "help": "allow unused parameters"},
}
_RAY_TUNE: _Options = {
    "use_ray_tune": {"action": BooleanOptionalAction, "default": False, "help": "search hyperparameters"},
    "num_samples": {"type": int, "default": 20, "help": "number of trials of the search"},
}
_MLFLOW: _Options = {
    "use_mlflow": {"action": BooleanOptionalAction, "default": False, "help": "record the run with MLflow"},
    "experiment": {"type": str, "default": "Default", "help": "experiment of MLflow"},
    "user": {"type": str, "default": None, "help": "user that the run is recorded for; by default you"},
    "tracking_uri": {"type": str, "default": "http://localhost:5000", "help": "address of MLflow"},
    "endpoint_url": {"type": str, "default": None, "help": "address of the S3 store of MLflow's artifacts"},
}


def add_ddp_args(parser: ArgumentParser, kwargs: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Nodes, GPUs and data loading processes."""
    return _add(parser, "ddp", _DDP, {"gpus": gpus(), **(kwargs or {})})


def add_learn_args(parser: ArgumentParser, kwargs: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Epochs, precision, batch size, and what most optimizers take."""
    return _add(parser, "learn", _LEARN, kwargs or {})


def add_ray_tune_args(parser: ArgumentParser, kwargs: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Whether to search hyperparameters, and in how many trials."""
    return _add(parser, "ray tune", _RAY_TUNE, kwargs or {})


def add_mlflow_args(parser: ArgumentParser, kwargs: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Whether to record with MLflow, and where."""
    return _add(parser, "mlflow", _MLFLOW, {"user": getpass.getuser(), **(kwargs or {})})


def update_args(args: Namespace, updates: Mapping[str, Any]) -> None:
    """Set several arguments at once."""
    vars(args).update(updates)


def default_args() -> Namespace:
    """Every argument with its default, for scripts that have no command line."""
    parser = ArgumentParser()
    for add in (add_ddp_args, add_learn_args, add_ray_tune_args, add_mlflow_args):
        add(parser)
    return parser.parse_args([])


def complete(args: Namespace | None) -> Namespace:
    """`args`, with the defaults of the groups that its parser did not have."""
    found = default_args() if args is None else args
    for name, value in vars(default_args()).items():
        if not hasattr(found, name):
            setattr(found, name, value)
    return found


def _add(parser: ArgumentParser, title: str, options: _Options, defaults: Mapping[str, Any]) -> ArgumentParser:
    unknown = sorted(set(defaults) - set(options))
    if unknown:
        raise InputError(f"unknown argument {', '.join(unknown)} in kwargs. Known arguments: {', '.join(options)}.")
    group = parser.add_argument_group(title)
    for name, option in options.items():
        group.add_argument(f"--{name}", **{**option, "default": defaults.get(name, option["default"])})
    return parser
