"""Objects that collect a metric by themselves, batch by batch: torchmetrics, and reducers.

What such an object holds can be put back after a batch that must not count, and kept in a checkpoint.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

logger = logging.getLogger(__name__)


@contextmanager
def unmoved(collectors: Iterable[Any]) -> Iterator[None]:
    """Leave the collectors as they are, whatever they collect meanwhile."""
    held = [(collector, copy.deepcopy(collector)) for collector in collectors]
    yield
    for collector, before in held:
        for own, was in zip(_parts(collector), _parts(before), strict=True):
            vars(own).update({name: value for name, value in vars(was).items() if _is_content(name, value)})


def collected(collector: Any) -> Any:
    """What a collector holds, as a checkpoint can keep it; None for one that cannot tell."""
    if isinstance(collector, nn.Module):
        return [dict(getattr(part, "metric_state", {})) for part in collector.modules()]
    return collector.state_dict() if hasattr(collector, "state_dict") else None


def give_back(name: str, collector: Any, content: Any) -> None:
    """Add what `collected` gave to what a collector holds."""
    if not isinstance(collector, nn.Module):
        collector.load_state_dict(content)
        return
    for part, state in zip(collector.modules(), content, strict=True):
        try:
            if state:
                part.merge_state(state)  # type: ignore[operator]
        except RuntimeError:
            logger.warning(
                "metric %r cannot take back what it held when the run was saved: its report counts what came after.",
                name,
            )


def _parts(collector: Any) -> list[Any]:
    return list(collector.modules()) if isinstance(collector, nn.Module) else [collector]


def _is_content(name: str, value: Any) -> bool:
    """Not the modules inside, which others may hold, nor the methods that torchmetrics wraps on each object."""
    return name != "_modules" and not callable(value)
