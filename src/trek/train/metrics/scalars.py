"""Scalars: which values a metric may have. One number is reported; several at once are left out, which is said once."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from trek.errors import InputError

logger = logging.getLogger(__name__)


class Scalars:
    """Turns values of metrics into numbers. Of the ranks of a run, only one `is_telling` what is left out."""

    def __init__(self, *, is_telling: bool = True) -> None:
        self.is_telling = is_telling
        self._left_out: set[str] = set()

    def of(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """The metrics that are numbers."""
        numbers = {name: self.number(name, value) for name, value in metrics.items()}
        return {name: number for name, number in numbers.items() if number is not None}

    def number(self, name: str, value: Any) -> float | None:
        """`value` as a number; None if it holds several. Raises `InputError` if it is not a number."""
        if isinstance(value, list | tuple | Mapping | set) or math.prod(getattr(value, "shape", ())) != 1:
            self.leave_out(name, value)
            return None
        try:
            return float(value.item() if hasattr(value, "item") else _not_text(value))
        except (TypeError, ValueError):
            self.refuse(name, value)

    def refuse(self, name: str, value: Any) -> NoReturn:
        """Raise `InputError` for a value that cannot be recorded."""
        if isinstance(value.item() if hasattr(value, "item") else value, complex):
            remedy = "Take its absolute value, or its real and imaginary part as two metrics."
            raise InputError(f"metric {name!r} must be a real number, got {_shown(value)}. {remedy}") from None
        raise InputError(
            f"metric {name!r} must be a number, got {_shown(value)}. Return a scalar tensor, a float, or a "
            "torchmetrics object."
        ) from None

    def leave_out(self, name: str, value: Any) -> None:
        """Say, once for each name, that `value` is not reported."""
        if name in self._left_out:
            return
        self._left_out.add(name)
        if self.is_telling:
            shape = getattr(value, "shape", None)
            what = f"{type(value).__name__} of shape {tuple(shape)}" if shape is not None else type(value).__name__
            logger.warning(
                "metric %r is not reported: it must be one number, got a %s. Take its mean or sum, or use a reducer.",
                name,
                what,
            )


def _not_text(value: Any) -> Any:
    if isinstance(value, str | bytes):
        raise TypeError("text is not a number, even if it looks like one")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}{'…' if len(text) > 60 else ''}" if value is not None else "None"
