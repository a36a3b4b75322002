"""Argument groups for scripts with an explicit loop, and the settings that they define.

    parser = trek.arguments.add_learn_args(ArgumentParser())                           # the defaults
    parser = trek.arguments.add_learn_args(ArgumentParser(), {"learning_rate": 1e-3})  # other defaults
    args = parser.parse_args()                                                         # or as an option: --lr 1e-3
    args.lr = 1e-3                                                                     # or set afterwards
    trek.run(train, args, **trek.arguments.settings(args))

Options for settings of training are made from `TrainSettings`, which defines their type, default and help.
"""

from __future__ import annotations

import types
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from trek.errors import InputError
from trek.strategies.strategy_registry import STRATEGIES
from trek.train.settings import TrainSettings

_Options = dict[str, dict[str, Any]]

_OPTION_NAMES = {"show_progress": "progress"}
"""Settings whose option has a different name."""
_LEARNING_SETTINGS = ("precision", "accumulate", "clip_norm", "clip_value", "ema_decay", "seed")
_PROCESS_SETTINGS = ("strategy",)
_RUN_SETTINGS = ("show_progress", "report_period", "compile", "deterministic", "on_nan", "keep_best", "keep_last")


def _option(name: str) -> dict[str, Any]:
    """The arguments of `add_argument` for one setting."""
    field = TrainSettings.model_fields[name]
    kind = _plain_type(field.annotation)
    option: dict[str, Any] = {"default": field.default, "dest": name, "help": str(field.description).rstrip(".")}
    if name == "strategy":
        return {**option, "choices": STRATEGIES.names()}
    if kind is bool:
        return {**option, "action": BooleanOptionalAction}
    if get_origin(kind) is Literal:
        return {**option, "choices": list(get_args(kind))}
    return {**option, "type": kind}


def _plain_type(annotation: Any) -> Any:
    """For example, `int` for `Annotated[int, …] | None`."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = get_args(annotation)[0]
    return annotation


def _options(names: tuple[str, ...]) -> _Options:
    return {_OPTION_NAMES.get(name, name): _option(name) for name in names}


_LEARN: _Options = {
    "epochs": {"type": int, "default": 5, "help": "passes over the training data"},
    "bs": {"type": int, "default": 64, "help": "samples per batch on each process", "aliases": ["--batch_size"]},
    "learning_rate": {"type": float, "default": 1e-3, "dest": "lr", "help": "learning rate", "aliases": ["--lr"]},
    "weight_decay": {"type": float, "default": 0.0, "help": "weight decay"},
    "betas": {"type": float, "nargs": 2, "default": (0.9, 0.999), "help": "Adam's betas"},
    "eps": {"type": float, "default": 1e-8, "help": "Adam's eps"},
    **_options(_LEARNING_SETTINGS),
}
_DDP: _Options = {
    "workers": {
        "type": int,
        "default": None,
        "help": "number of processes; by default one per GPU, or one without a GPU",
        "aliases": ["--gpus"],
    },
    "num_workers": {"type": int, "default": 0, "help": "number of data loading processes for each training process"},
    "find_unused_parameters": {"action": BooleanOptionalAction, "default": False, "help": "allow unused parameters"},
    **_options(_PROCESS_SETTINGS),
}
_RUN: _Options = {
    "name": {"type": str, "default": None, "help": "name of the run and of its folder"},
    "resume": {
        "type": str,
        "default": None,
        "help": "a checkpoint folder, or 'latest' for the newest one of this name",
    },
    **_options(_RUN_SETTINGS),
}
_RUN_ARGUMENTS = ("workers", "name", "resume")
"""Arguments of `trek.run` that are not settings of training."""


def add_learn_args(parser: ArgumentParser, defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Epochs, batch size, optimizer, precision, accumulation, clipping, seed."""
    return _add(parser, "learning", _LEARN, defaults)


def add_ddp_args(parser: ArgumentParser, defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Number of processes, and the strategy that keeps them in sync."""
    return _add(parser, "processes", _DDP, defaults)


def add_run_args(parser: ArgumentParser, defaults: Mapping[str, Any] | None = None) -> ArgumentParser:
    """Name, resume, progress, reports, checkpoints to keep."""
    return _add(parser, "run", _RUN, defaults)


def settings(args: Namespace) -> dict[str, Any]:
    """The settings of `trek.run` and the Traveler among `args`; the other arguments are for the loop itself."""
    names = (*_LEARNING_SETTINGS, *_PROCESS_SETTINGS, *_RUN_SETTINGS, *_RUN_ARGUMENTS)
    chosen = {name: getattr(args, name) for name in names if hasattr(args, name)}
    if getattr(args, "find_unused_parameters", False):
        chosen["strategy_options"] = {"find_unused_parameters": True}
    return chosen


def _add(parser: ArgumentParser, title: str, options: _Options, defaults: Mapping[str, Any] | None) -> ArgumentParser:
    known = {name: name for name in options} | {o["dest"]: name for name, o in options.items() if "dest" in o}
    unknown = sorted(set(defaults or {}) - set(known))
    if unknown:
        raise InputError(f"unknown argument {', '.join(unknown)} in defaults. Known arguments: {', '.join(options)}.")
    chosen = {known[name]: value for name, value in (defaults or {}).items()}
    group = parser.add_argument_group(title)
    for name, option in options.items():
        option = {**option, "default": chosen.get(name, option["default"])}
        group.add_argument(f"--{name}", *option.pop("aliases", []), **option)
    return parser
