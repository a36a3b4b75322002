"""Rules between the keys of a config that no single key can break. Run before anything is stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trek.errors import ConfigError
from trek.experiments.config_errors import Problem, parameter_problem
from trek.search.searcher_registry import SEARCHERS
from trek.search.space import Categorical, Const, Int, Parameter, Space, leaves, parse_parameter
from trek.strategies.strategy_registry import STRATEGIES
from trek.train.loggers.logger_registry import LOGGERS

if TYPE_CHECKING:
    from trek.experiments.config import ExperimentConfig

_ENTRYPOINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
DECIDED_ELSEWHERE = {
    "max_length": "searcher.max_length",
    "seed": "reproducibility.experiment_seed",
    "metric": "searcher.metric",
    "smaller_is_better": "searcher.smaller_is_better",
    "keep_best": "checkpoint_storage.save_trial_best",
    "keep_last": "checkpoint_storage.save_trial_latest",
    "keep_every": "checkpoint_storage.save_trial_every",
}
"""Settings of training that an experiment has in other sections."""


def check_config(config: ExperimentConfig) -> None:
    """Raise `Problem` for the first broken rule."""
    _check_entrypoint(config)
    _check_space(config)
    _check_batch_size(config)
    _check_resources(config)
    _check_training(config)
    _check_lengths(config)
    _check_log_policies(config)
    if config.checkpoint_storage.type == "directory" and not config.checkpoint_storage.path:
        raise Problem(("checkpoint_storage",), "checkpoint_storage of type 'directory' needs a 'path'.")
    if config.checkpoint_storage.type == "url" and not config.checkpoint_storage.url:
        raise Problem(
            ("checkpoint_storage",), "checkpoint_storage outside this machine needs a 'url', such as s3://bucket/runs."
        )


def _check_entrypoint(config: ExperimentConfig) -> None:
    if config.command is not None:
        if not config.command or not all(word and "\0" not in word for word in config.command[:1]):
            raise Problem(("entrypoint",), "entrypoint is a command without a program, such as [python, train.py].")
    elif not _ENTRYPOINT.fullmatch(config.trial_class):
        raise Problem(
            ("entrypoint",),
            f"entrypoint {config.entrypoint!r} is not of the form module:Class, such as model_def:MNistTrial, "
            "and no command, such as python train.py.",
        )


def _check_space(config: ExperimentConfig) -> None:
    for path, leaf in leaves(config.hyperparameters):
        try:
            parse_parameter(leaf)
        except ValidationError as error:
            raise parameter_problem(error, path) from None
    try:
        space = Space(config.hyperparameters)
        SEARCHERS.load(config.searcher.name).check_space(space)
    except ConfigError as error:
        raise Problem(("hyperparameters",), str(error)) from None


def _check_batch_size(config: ExperimentConfig) -> None:
    raw = config.hyperparameters.get("global_batch_size")
    if raw is None:
        return
    slots = config.resources.slots_per_trial
    for size in _smallest_values(parse_parameter(raw)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise Problem(
                ("hyperparameters", "global_batch_size"),
                f"global_batch_size is {size!r}: it needs a whole number, at least 1.",
            )
        if size < slots:
            raise Problem(
                ("hyperparameters", "global_batch_size"),
                f"global_batch_size {size} is smaller than the {slots} slots of a trial, so some would have nothing "
                "to do. Raise global_batch_size or lower resources.slots_per_trial.",
            )


def _smallest_values(parameter: Parameter) -> list[Any]:
    if isinstance(parameter, Const):
        return [parameter.val]
    if isinstance(parameter, Int):
        return [parameter.minval]
    return list(parameter.vals) if isinstance(parameter, Categorical) else []


def _check_resources(config: ExperimentConfig) -> None:
    slots, most = config.resources.slots_per_trial, config.resources.max_slots
    if most is not None and most < slots:
        raise Problem(
            ("resources", "max_slots"),
            f"resources.max_slots {most} is below slots_per_trial {slots}, so no trial could ever start. Raise it.",
        )


def _check_training(config: ExperimentConfig) -> None:
    for name, place in DECIDED_ELSEWHERE.items():
        if name in config.training.model_fields_set:
            raise Problem(("training", name), f"'training.{name}' is set by {place}. Remove it, and set that instead.")
    strategy = config.training.strategy
    if strategy is not None:
        try:
            STRATEGIES.load(strategy).check_workers(config.resources.slots_per_trial)
        except ConfigError as error:
            raise Problem(("training", "strategy"), str(error)) from None
    for name in config.training.loggers:
        try:
            LOGGERS.check(name)
        except ConfigError as error:
            raise Problem(("training", "loggers"), str(error)) from None


def _check_lengths(config: ExperimentConfig) -> None:
    if config.searcher.max_length.unit == "records" and "global_batch_size" not in config.hyperparameters:
        raise Problem(
            ("searcher", "max_length"),
            "a length in records needs hyperparameters.global_batch_size to be counted. Add it, or use batches.",
        )


def _check_log_policies(config: ExperimentConfig) -> None:
    for index, policy in enumerate(config.log_policies):
        try:
            re.compile(policy.pattern)
        except re.error as error:
            raise Problem(
                ("log_policies", index, "pattern"),
                f"the log policy's pattern {policy.pattern!r} is no regular expression: {error}.",
            ) from None
