"""DenseParameter: a parameter of the model, or a part of a large one, on one server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trek.ps.rules import Rule, Updater, check_change, check_dense_rule, check_dense_state


class DenseParameter:
    """Values, and the optimizer that changes them."""

    def __init__(self, value: torch.Tensor, *, version: int) -> None:
        self.value = value.detach().clone()
        self.changed_at = version
        """The server's version that last changed it."""
        self._updater: Updater | None = None
        self._rule: Rule | None = None

    @property
    def rule(self) -> Rule | None:
        """The rule of the last update."""
        return self._rule

    @property
    def state(self) -> dict[str, Any]:
        """The optimizer's state: tensors and numbers by name."""
        return self._updater.state if self._updater else {}

    def check(self, rule: Rule) -> None:
        """Raise `InputError` unless this can be updated by `rule`; changes nothing."""
        check_dense_rule(rule, self.value.dtype)
        if self._rule is not None:
            check_change(self._rule, rule)

    def follow(self, rule: Rule) -> None:
        """Use `rule` from now on; InputError if that is not possible."""
        self.check(rule)
        if self._updater is None:
            self._updater = Updater(rule, self.value)
        self._updater.follow(rule)
        self._rule = rule

    def load(self, state: Mapping[str, Any], *, rule: Rule) -> None:
        """Go on with the state of an optimizer; InputError if it does not fit."""
        self.check(rule)
        check_dense_state(rule, self.value, state)
        self.follow(rule)
        assert self._updater is not None
        if state:
            self._updater.load_state(state)

    def update(self, gradient: torch.Tensor, *, version: int, scale_lr: float) -> None:
        """One step by the rule that is followed."""
        assert self._updater is not None
        self._updater.update(gradient.reshape(self.value.shape), scale_lr=scale_lr)
        self.changed_at = version
