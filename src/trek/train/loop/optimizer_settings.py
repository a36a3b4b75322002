"""Settings of optimizers and types of their state, and what to do if a resumed run creates its optimizers with others.

A checkpoint restores the settings as they were when it was saved, so that the run continues exactly. If the user
creates the optimizer with a different setting than before, the new setting takes effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trek.strategies.sharded import is_sharded, sharded_like


def plain_settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The current plain settings (numbers, booleans, tuples) of each group."""
    return [
        {key: value for key, value in group.items() if isinstance(value, bool | int | float | tuple)}
        for group in optimizer.param_groups
    ]


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
