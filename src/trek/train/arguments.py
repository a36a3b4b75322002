"""Argument groups for scripts with an explicit loop, and the settings they stand for.

parser = trek.arguments.add_learn_args(ArgumentParser())                          # the defaults
parser = trek.arguments.add_learn_args(ArgumentParser(), {"learning_rate": 1e-3}) # defaults of your own
args = parser.parse_args()                                                        # or on the command line: --lr 1e-3
args.lr = 1e-3                                                                    # or fixed afterwards
trek.run(train, args, **trek.arguments.settings(args))
"""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from typing import Any

from trek.errors import InputError

_Options = dict[str, dict[str, Any]]

_LEARN: _Options = {
    "epochs": {"type": int, "default": 5, "help": "passes over the training data"},
    "bs": {"type": int, "default": 64, "help": "samples per batch and process", "aliases": ["--batch_size"]},
    "learning_rate": {"type": float, "default": 1e-3, "dest": "lr", "help": "learning rate", "aliases": ["--lr"]},
    "weight_decay": {"type": float, "default": 0.0, "help": "weight decay"},
    "betas": {"type": float, "nargs": 2, "default": (0.9, 0.999), "help": "Adam's betas"},
    "eps": {"type": float, "default": 1e-8, "help": "Adam's eps"},
    "precision": {"choices": ["fp32", "bf16", "fp16"], "default": "fp32", "help": "what the forward pass computes in"},
    "accumulate": {"type": int, "default": 1, "help": "batches whose gradients make one step"},
    "clip_norm": {"type": float, "default": None, "help": "largest norm of a gradient"},
    "seed": {"type": int, "default": 0, "help": "seed of everything random"},
}
_DDP: _Options = {
    "workers": {
        "type": int,
        "default": None,
        "help": "processes; by default one per GPU, or one",
        "aliases": ["--gpus"],
    },
    "strategy": {"choices": ["solo", "ddp", "fsdp"], "default": None, "help": "how processes keep together"},
    "num_workers": {"type": int, "default": 0, "help": "processes that load data, for each training process"},
    "find_unused_parameters": {"action": BooleanOptionalAction, "default": False, "help": "allow unused parameters"},
}
_RUN: _Options = {
    "name": {"type": str, "default": None, "help": "name of the run, and of its folder"},
    "resume": {"type": str, "default": None, "help": "a checkpoint folder, or 'latest' of the run's name"},
    "progress": {"action": BooleanOptionalAction, "default": True, "help": "draw a progress bar"},
}

_SETTINGS = ("precision", "accumulate", "clip_norm", "seed", "workers", "strategy", "name", "resume")


def add_learn_args(parser: ArgumentParser, defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Epochs, batch size, optimizer, precision, seed."""
    return _add(parser, "learning", _LEARN, defaults)


def add_ddp_args(parser: ArgumentParser, defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Processes and how they keep together."""
    return _add(parser, "processes", _DDP, defaults)


def add_run_args(parser: ArgumentParser, defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Name, resume, progress."""
    return _add(parser, "run", _RUN, defaults)


def settings(args: Namespace) -> dict[str, Any]:
    """What of `args` is a setting of `trek.run` and the Traveler; the rest is for the loop itself."""
    chosen = {name: getattr(args, name) for name in _SETTINGS if hasattr(args, name)}
    if hasattr(args, "progress"):
        chosen["show_progress"] = args.progress
    if getattr(args, "find_unused_parameters", False):
        chosen["strategy_options"] = {"find_unused_parameters": True}
    return chosen


def _add(parser: ArgumentParser, title: str, options: _Options, defaults: Mapping[str, Any] | None) -> ArgumentParser:
    known = {name: name for name in options} | {o["dest"]: name for name, o in options.items() if "dest" in o}
    unknown = sorted(set(defaults or {}) - set(known))
    if unknown:
        raise InputError(f"there is no argument {', '.join(unknown)} to default. Arguments are: {', '.join(options)}.")
    own = {known[name]: value for name, value in (defaults or {}).items()}
    group = parser.add_argument_group(title)
    for name, option in options.items():
        option = {**option, "default": own.get(name, option["default"])}
        group.add_argument(f"--{name}", *option.pop("aliases", []), **option)
    return parser
