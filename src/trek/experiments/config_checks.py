"""Rules that involve several keys of a config. Checked before anything is stored."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trek.errors import ConfigError, InputError
from trek.experiments.config_errors import Problem, parameter_problem
from trek.experiments.log_patterns import MAX_PATTERNS, compile_pattern
from trek.search.searcher_registry import SEARCHERS, make_searcher
from trek.search.space import Categorical, Const, Int, Parameter, Space, leaves, parse_parameter
from trek.strategies.strategy_registry import STRATEGIES, check_elastic
from trek.train.loggers.choice import check_choice

if TYPE_CHECKING:
    from trek.experiments.config import ExperimentConfig, SlotRange

_ENTRYPOINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
MAX_AT_ONCE = 10_000
SET_ELSEWHERE = {
    "max_length": "searcher.max_length",
    "seed": "reproducibility.experiment_seed",
    "metric": "searcher.metric",
    "smaller_is_better": "searcher.smaller_is_better",
    "keep_best": "checkpoint_storage.save_trial_best",
    "keep_last": "checkpoint_storage.save_trial_latest",
    "keep_every": "checkpoint_storage.save_trial_every",
}
"""Settings of training that the config of an experiment has in other sections."""


def check_config(config: ExperimentConfig) -> None:
    """Raise `Problem` for the first violated rule."""
    _check_entrypoint(config)
    _check_space(config)
    _check_batch_size(config)
    _check_resources(config)
    _check_training(config)
    _check_lengths(config)
    _check_concurrency(config)
    _check_log_policies(config)
    if config.checkpoint_storage.type == "directory" and not config.checkpoint_storage.path:
        raise Problem(("checkpoint_storage",), "checkpoint_storage of type 'directory' needs a 'path'.")
    if config.checkpoint_storage.type == "url" and not config.checkpoint_storage.url:
        raise Problem(("checkpoint_storage",), "checkpoint_storage needs a 'url', such as s3://bucket/runs.")


def _check_entrypoint(config: ExperimentConfig) -> None:
    if config.command is not None:
        if not config.command or not all(word and "\0" not in word for word in config.command[:1]):
            raise Problem(("entrypoint",), "entrypoint must name a program, such as [python, train.py].")
    elif not _ENTRYPOINT.fullmatch(config.trial_class):
        raise Problem(
            ("entrypoint",),
            f"entrypoint must be module:Class, such as model_def:MNistTrial, or a command, such as python train.py, "
            f"got {config.entrypoint!r}.",
        )


def _check_space(config: ExperimentConfig) -> None:
    for path, leaf in leaves(config.hyperparameters):
        try:
            parse_parameter(leaf)
        except ValidationError as error:
            raise parameter_problem(error, path) from None
        except ConfigError as error:
            raise Problem(("hyperparameters", *path, "type"), f"hyperparameters.{'.'.join(path)}: {error}") from None
    try:
        space = Space(config.hyperparameters)
        SEARCHERS.load(config.searcher.name).check_space(space)
    except ConfigError as error:
        raise Problem(("hyperparameters",), str(error)) from None


def _check_batch_size(config: ExperimentConfig) -> None:
    raw = config.hyperparameters.get("global_batch_size")
    if raw is None:
        return
    slots = config.resources.most_slots
    for size in _smallest_values(_batch_size(raw)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise Problem(
                ("hyperparameters", "global_batch_size"),
                f"global_batch_size must be a whole number of at least 1, got {size!r}.",
            )
        if size < slots:
            raise Problem(
                ("hyperparameters", "global_batch_size"),
                f"global_batch_size {size} is smaller than the {slots} slots of a trial. Increase global_batch_size "
                "or decrease resources.slots_per_trial.",
            )


def _batch_size(raw: Any) -> Parameter:
    try:
        return parse_parameter(raw)
    except ConfigError as error:
        raise Problem(("hyperparameters", "global_batch_size"), f"global_batch_size: {error}") from None


def _smallest_values(parameter: Parameter) -> list[Any]:
    if isinstance(parameter, Const):
        return [parameter.val]
    if isinstance(parameter, Int):
        return [parameter.minval]
    return list(parameter.vals) if isinstance(parameter, Categorical) else []


def _check_resources(config: ExperimentConfig) -> None:
    resources = config.resources
    slots, most = resources.slots_per_trial, resources.max_slots
    if resources.elastic is not None:
        _check_range(resources.elastic, most)
    elif most is not None and most < resources.least_slots:
        raise Problem(
            ("resources", "max_slots"),
            f"resources.max_slots {most} is smaller than slots_per_trial {slots}, so no trial can start. Increase it.",
        )


def _check_range(slots: SlotRange, most: int | None) -> None:
    if slots.min > slots.max:
        raise Problem(
            ("resources", "slots_per_trial"),
            f"resources.slots_per_trial has min {slots.min} above max {slots.max}. Exchange them.",
        )
    if most is not None and most < slots.max:
        raise Problem(
            ("resources", "max_slots"),
            f"resources.max_slots {most} is smaller than slots_per_trial.max {slots.max}. Increase it, or lower "
            "slots_per_trial.max.",
        )


def _check_training(config: ExperimentConfig) -> None:
    for name, key in SET_ELSEWHERE.items():
        if name in config.training.model_fields_set:
            raise Problem(("training", name), f"'training.{name}' is set by {key}. Remove it, and set {key} instead.")
    strategy = config.training.strategy
    if (strategy == "ps") != bool(config.resources.servers):
        raise Problem(
            ("resources", "servers"),
            f"resources.servers is {config.resources.servers} with the strategy {strategy!r}. The strategy 'ps' needs "
            "at least 1 server, and others have none.",
        )
    if config.resources.elastic is not None:
        try:
            check_elastic(strategy, config.training.strategy_options)
        except ConfigError as error:
            raise Problem(("training", "strategy"), str(error)) from None
    if strategy is not None:
        try:
            STRATEGIES.load(strategy).check_workers(config.resources.most_slots)
        except ConfigError as error:
            raise Problem(("training", "strategy"), str(error)) from None
    for chosen in config.training.loggers:
        try:
            check_choice(chosen)
        except InputError as error:
            raise Problem(("training", "loggers"), str(error)) from None


def _check_lengths(config: ExperimentConfig) -> None:
    if config.searcher.length.unit == "records" and "global_batch_size" not in config.hyperparameters:
        raise Problem(
            ("searcher", "max_length"),
            "a length in records needs hyperparameters.global_batch_size. Add it, or give the length in batches.",
        )


def _check_concurrency(config: ExperimentConfig) -> None:
    """All trials that may run at the same time are stored at once, which must not take long."""
    limit = getattr(config.searcher, "max_concurrent_trials", None)
    if limit is None or 0 < limit <= MAX_AT_ONCE:
        return
    at_once = min(_num_trials(config), limit or math.inf)
    if at_once > MAX_AT_ONCE:
        raise Problem(
            ("searcher", "max_concurrent_trials"),
            f"searcher.max_concurrent_trials allows {at_once} trials at the same time, more than {MAX_AT_ONCE}. "
            f"Set it to {MAX_AT_ONCE} or less.",
        )


def _num_trials(config: ExperimentConfig) -> int:
    if (most := getattr(config.searcher, "max_trials", None)) is not None:
        return int(most)
    seed = config.reproducibility.experiment_seed
    searcher = make_searcher(config.searcher, hyperparameters=config.hyperparameters, seed=seed)
    return searcher.expected().total()


def _check_log_policies(config: ExperimentConfig) -> None:
    if len(config.log_policies) > MAX_PATTERNS:
        raise Problem(
            ("log_policies",), f"at most {MAX_PATTERNS} log policies are supported, got {len(config.log_policies)}."
        )
    for index, policy in enumerate(config.log_policies):
        try:
            compile_pattern(policy.pattern)
        except InputError as error:
            raise Problem(("log_policies", index, "pattern"), f"{error}") from None
