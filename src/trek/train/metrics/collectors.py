"""Objects that accumulate a metric themselves, batch by batch: torchmetrics objects and reducers.

Their state can be reset after a batch that must not count, and saved in a checkpoint.
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
def preserve_state(collectors: Iterable[Any]) -> Iterator[None]:
    """Restore the state of the collectors at the end of the block."""
    copies = [(collector, copy.deepcopy(collector)) for collector in collectors]
    yield
    for collector, copied in copies:
        for part, saved in zip(_parts(collector), _parts(copied), strict=True):
            vars(part).update({name: value for name, value in vars(saved).items() if _is_state(name, value)})


def collector_state(collector: Any) -> Any:
    """The state of a collector in a form that a checkpoint can hold; None if it has no `state_dict`."""
    if isinstance(collector, nn.Module):
        return [dict(getattr(part, "metric_state", {})) for part in collector.modules()]
    return collector.state_dict() if hasattr(collector, "state_dict") else None


def merge_collector_state(name: str, collector: Any, saved: Any) -> None:
    """Add the result of `collector_state` to the state of a collector."""
    if not isinstance(collector, nn.Module):
        collector.load_state_dict(saved)
        return
    for part, state in zip(collector.modules(), saved, strict=True):
        try:
            if state:
                part.merge_state(state)  # type: ignore[operator]
        except RuntimeError:
            logger.warning(
                "metric %r cannot restore its state: its next report covers only the batches after the checkpoint.",
                name,
            )


def _parts(collector: Any) -> list[Any]:
    return list(collector.modules()) if isinstance(collector, nn.Module) else [collector]


def _is_state(name: str, value: Any) -> bool:
    """Exclude child modules, which may be shared, and the methods that torchmetrics wraps on each object."""
    return name != "_modules" and not callable(value)
