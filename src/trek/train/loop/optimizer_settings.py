"""Settings an optimizer was made with, and what to do when a resumed run made it with others.

A checkpoint brings back the settings as they stood, so that a run goes on exactly. Where the user made the optimizer
differently this time, that is a wish, and the new setting wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def made_with(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The plain settings of each group, as they are now."""
    return [
        {key: value for key, value in group.items() if isinstance(value, bool | int | float | tuple)}
        for group in optimizer.param_groups
    ]


def apply_changes(
    optimizer: torch.optim.Optimizer,
    schedulers: Sequence[Any],
    *,
    before: Sequence[Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
) -> None:
    """Set what differs between how the optimizer was made `before` and `now`; a learning rate keeps its decay."""
    for group, old, new in zip(optimizer.param_groups, before, now, strict=True):
        for key in new:
            if key in old and old[key] != new[key]:
                _change(group, key, old=old[key], new=new[key])
    has_new_rate = any(old.get("lr") != new.get("lr") for old, new in zip(before, now, strict=True))
    for scheduler in schedulers:
        if has_new_rate and hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]


def _change(group: dict[str, Any], key: str, *, old: Any, new: Any) -> None:
    if key != "lr":
        group[key] = new
        return
    group["lr"] = new * (group["lr"] / old) if old else new
    if "initial_lr" in group:
        group["initial_lr"] = group["initial_lr"] * (new / old) if old else new
