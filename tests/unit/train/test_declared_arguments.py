"""Methods of a Trial get the arguments that they declare, and keep the parameters of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from trek.errors import EntrypointError
from trek.train.declared_arguments import with_declared_arguments

NAMES = ("batch", "model", "epoch_idx", "batch_idx")


def _decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


METHODS: list[tuple[Callable[..., Any], Any]] = [
    (lambda batch, model, epoch_idx, batch_idx: (batch, model, epoch_idx, batch_idx), ("B", "M", "E", "I")),
    (lambda batch: batch, "B"),
    (lambda batch, batch_idx: (batch, batch_idx), ("B", "I")),
    (lambda model, batch: (batch, model), ("B", "M")),
    (lambda x, net: (x, net), ("B", "M")),
    (lambda batch, model, frozen=False: (batch, model, frozen), ("B", "M", False)),
    (lambda batch, model, scale=1.0, batch_idx=None: (batch, model, scale, batch_idx), ("B", "M", 1.0, "I")),
    (lambda batch, scale=2, *, batch_idx, debug=0: (batch, scale, batch_idx, debug), ("B", 2, "I", 0)),
    (lambda x, frozen=False: (x, frozen), ("B", False)),
    (lambda batch=None, model=None, lr=0.5: (batch, model, lr), ("B", "M", 0.5)),
    (lambda *args: args, ("B", "M", "E", "I")),
    (lambda batch, *rest: (batch, *rest), ("B", "M", "E", "I")),
    (lambda **named: named, {"batch": "B", "model": "M", "epoch_idx": "E", "batch_idx": "I"}),
    (lambda b, lr=0.5, **named: (b, lr, named), ("B", 0.5, {"model": "M", "epoch_idx": "E", "batch_idx": "I"})),
    (_decorated(lambda batch, model, frozen=False: (batch, model, frozen)), ("B", "M", False)),
    (partial(lambda batch, model, frozen: (batch, model, frozen), frozen=True), ("B", "M", True)),
]  # fmt: skip


@pytest.mark.parametrize(("method", "expected"), METHODS, ids=range(len(METHODS)))
def test_a_method_gets_what_it_declares_and_keeps_its_own_defaults(method: Any, expected: Any) -> None:
    """A parameter with a default of the user's own used to be filled with epoch_idx or batch_idx."""
    assert with_declared_arguments(method, NAMES)("B", "M", "E", "I") == expected


@pytest.mark.parametrize("method", [lambda batch, model, a, b, c: 0, lambda batch, *, rate: 0])
def test_a_parameter_that_nobody_fills_is_refused(method: Any) -> None:
    with pytest.raises(EntrypointError, match=r"may take only batch, model, epoch_idx, batch_idx, got .*default"):
        with_declared_arguments(method, NAMES)
