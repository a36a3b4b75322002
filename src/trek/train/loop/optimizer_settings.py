"""Settings of optimizers and types of their state, and what to do if a resumed run creates its optimizers with others.

A checkpoint restores the settings as they were when it was saved, so that the run continues exactly. If the user
creates the optimizer with a different setting than before, the new setting takes effect.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from trek.errors import ConfigError, InputError
from trek.strategies.sharded import is_sharded, sharded_like


def plain_settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The current plain settings (numbers, booleans, tuples) of each group."""
    return [
        {key: value for key, value in group.items() if isinstance(value, bool | int | float | tuple)}
        for group in optimizer.param_groups
    ]


def check_numbers(optimizer: torch.optim.Optimizer) -> None:
    """Raise `InputError` if a setting of an optimizer is text that is a number."""
    for group in optimizer.param_groups:
        for key, value in group.items():
            if is_number_text(value):
                raise InputError(
                    f"{key} of {type(optimizer).__name__} is the text {value!r} where a number belongs. Write "
                    f"{key}={float(value)!r}, or convert it with float()."
                )


def is_number_text(value: Any) -> bool:
    """Whether a value is text that could be read as a number, such as what YAML makes of 1e-3."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


@contextmanager
def naming_number_texts(hparams: Mapping[str, Any]) -> Iterator[None]:
    """Within the block, an error of an optimizer of torch that was given text for a number names the hyperparameter."""
    try:
        yield
    except (TypeError, ValueError) as error:
        texts = [(name, value) for name, value in hparams.items() if is_number_text(value)]
        if not texts or not _is_of_optimizers(error):
            raise
        name, value = texts[0]
        raise ConfigError(
            f"hyperparameter {name!r} is the text {value!r}, and the optimizer needs a number. Write {float(value)!r}; "
            "YAML reads 1e-3 as text, and 1.0e-3 as a number."
        ) from error


def _is_of_optimizers(error: BaseException) -> bool:
    """Whether the error was raised in one of torch's modules of optimizers."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith("torch.optim")


def apply_changed_settings(
    optimizer: torch.optim.Optimizer,
    schedulers: Sequence[Any],
    *,
    old: Sequence[Mapping[str, Any]],
    new: Sequence[Mapping[str, Any]],
) -> None:
    """Apply what differs between the `old` and `new` initial settings; a learning rate keeps its decay."""
    for group, before, after in zip(optimizer.param_groups, old, new, strict=True):
        for key in after:
            if key in before and before[key] != after[key]:
                _change(group, key, old=before[key], new=after[key])
    has_new_rate = any(before.get("lr") != after.get("lr") for before, after in zip(old, new, strict=True))
    for scheduler in schedulers:
        if has_new_rate and hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]


def restore_types(
    optimizer: torch.optim.Optimizer, saved: Mapping[Any, Mapping[str, Any]], keys: Sequence[Any]
) -> None:
    """Give the state the types it was saved with; `keys` are those of the parameters in `saved`, in order.

    `load_state_dict` converts state to the type of its parameter, which rounds moments in float32 of bfloat16 weights.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, key in zip(parameters, keys, strict=True):
        held = optimizer.state.get(parameter, {})
        for name, value in saved.get(key, {}).items():
            loaded = held.get(name)
            if isinstance(loaded, torch.Tensor) and isinstance(value, torch.Tensor) and loaded.dtype != value.dtype:
                held[name] = sharded_like(value, loaded) if is_sharded(loaded) else value.to(loaded.device)


def _change(group: dict[str, Any], key: str, *, old: Any, new: Any) -> None:
    if key != "lr":
        group[key] = new
        return
    group["lr"] = new * (group["lr"] / old) if old else new
    if "initial_lr" in group:
        group["initial_lr"] = group["initial_lr"] * (new / old) if old else new
