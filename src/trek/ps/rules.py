"""Rules: how a server turns gradients into new values. torch.optim itself does the arithmetic.

A dense parameter is updated by an optimizer of its own, so the result is torch.optim's to the bit. The rows of a push
are gathered into one block and updated as torch.optim updates a parameter that has just those rows (`row_rules`);
`step` counts the pushes of the table. This is the lazy rule: rows that are not in a push keep their values and their
state, so there is no decay of momentum or weights while a row is not used. For SGD without momentum, for Adagrad and
for SparseAdam it is torch's own rule for sparse gradients.

Nothing but the names below can be asked for: what arrives from another process never selects code.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from trek.errors import InputError
from trek.ps.distinct_ids import Floats
from trek.ps.ftrl import FTRL
from trek.ps.id_index import Rows
from trek.ps.row_rules import (
    RowUpdate,
    update_by_adagrad,
    update_by_adam,
    update_by_ftrl,
    update_by_rmsprop,
    update_by_sgd,
    update_by_sparse_adam,
)
from trek.ps.rows_in_place import add_rows, can_add_in_place

Slots = Callable[[Mapping[str, Any]], dict[str, float]]
_NUM_CHECKED = 256
"""So many rules are known to be valid: a scheduler makes a new one for every step, for many parameters."""


@dataclass(frozen=True)
class _Kind:
    optimizer: Callable[..., torch.optim.Optimizer]
    slots: Slots
    """The state of a row by name, with the value it starts at, for given settings."""
    update_rows: Callable[[RowUpdate], None]
    is_for_rows: bool = False
    """Whether the optimizer takes sparse gradients only."""


def _sgd_slots(settings: Mapping[str, Any]) -> dict[str, float]:
    return {"momentum_buffer": 0.0} if settings["momentum"] else {}


def _adam_slots(settings: Mapping[str, Any]) -> dict[str, float]:
    last = {"max_exp_avg_sq": 0.0} if settings.get("amsgrad") else {}
    return {"exp_avg": 0.0, "exp_avg_sq": 0.0, **last}


def _adagrad_slots(settings: Mapping[str, Any]) -> dict[str, float]:
    return {"sum": settings["initial_accumulator_value"]}


def _rmsprop_slots(settings: Mapping[str, Any]) -> dict[str, float]:
    momentum = {"momentum_buffer": 0.0} if settings["momentum"] else {}
    return {"square_avg": 0.0, **momentum, **({"grad_avg": 0.0} if settings["centered"] else {})}


def _ftrl_slots(settings: Mapping[str, Any]) -> dict[str, float]:
    return {"sum": settings["initial_accumulator_value"], "linear": 0.0}


_KINDS = {
    "SGD": _Kind(torch.optim.SGD, _sgd_slots, update_by_sgd),
    "Adagrad": _Kind(torch.optim.Adagrad, _adagrad_slots, update_by_adagrad),
    "Adam": _Kind(torch.optim.Adam, _adam_slots, update_by_adam),
    "AdamW": _Kind(torch.optim.AdamW, _adam_slots, update_by_adam),
    "SparseAdam": _Kind(torch.optim.SparseAdam, _adam_slots, update_by_sparse_adam, is_for_rows=True),
    "RMSprop": _Kind(torch.optim.RMSprop, _rmsprop_slots, update_by_rmsprop),
    "FTRL": _Kind(FTRL, _ftrl_slots, update_by_ftrl),
}
_NOT_A_RULE = {"params", "foreach", "fused", "capturable", "differentiable"}
"""Arguments of optimizers that say how to compute, not what."""


@dataclass(frozen=True)
class Rule:
    """An optimizer's kind and settings, as text that may travel: `Rule("SGD", '{"lr": 0.1, …}')`."""

    kind: str
    settings: str

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Rule:
        """The rule of one parameter group of an optimizer, with its learning rate of now."""
        kind = type(optimizer).__name__
        if _kind(kind).optimizer is not type(optimizer):
            raise InputError(f"parameter servers know torch's {kind}, but not {type(optimizer).__module__}.{kind}.")
        plain = {name: _plain(group[name]) for name in _settings_of(kind) if name in group}
        return cls(kind, json.dumps(plain, sort_keys=True))

    @classmethod
    def named(cls, kind: str, **settings: Any) -> Rule:
        """The rule called `kind`, by default with torch's settings."""
        optimizer = _optimizer(kind, torch.nn.Parameter(torch.zeros(1)), settings)
        return cls.of(optimizer, optimizer.param_groups[0])


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise InputError(
            f"parameter servers have no optimizer {name!r}. Use one of: {', '.join(sorted(_KINDS))} of torch.optim "
            "(FTRL of trek.ps)."
        )
    return _KINDS[name]


@lru_cache
def _settings_of(kind: str) -> tuple[str, ...]:
    """The arguments of an optimizer that belong to its rule."""
    return tuple(name for name in inspect.signature(_kind(kind).optimizer).parameters if name not in _NOT_A_RULE)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _optimizer(kind: str, parameter: torch.nn.Parameter, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    with _refused(f"invalid settings of {kind}"):
        return _kind(kind).optimizer([parameter], **settings)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Turn whatever torch raises in constructors and steps of optimizers into an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {type(error).__name__}: {error}.") from error


def _settings(rule: Rule) -> dict[str, Any]:
    """The settings of a rule, which may come from another program."""
    try:
        found = json.loads(rule.settings)
    except ValueError as error:
        raise InputError(f"the settings of {rule.kind} must be a JSON object, got {rule.settings!r}.") from error
    if not isinstance(found, dict):
        raise InputError(f"the settings of {rule.kind} must be a JSON object, got {rule.settings!r}.")
    if unknown := sorted(found.keys() - set(_settings_of(rule.kind))):
        known = ", ".join(_settings_of(rule.kind))
        raise InputError(f"servers have no setting {unknown[0]!r} of {rule.kind}. Use some of: {known}.")
    return found


class Updater:
    """Applies rules to one dense parameter, or to blocks of rows of one table."""

    def __init__(self, rule: Rule, value: torch.Tensor) -> None:
        self._parameter = torch.nn.Parameter(value)
        self._rule = rule
        self._kind = _kind(rule.kind)
        self._optimizer = _optimizer(rule.kind, self._parameter, _settings(rule))
        self._group = self._optimizer.param_groups[0]
        self.slots: dict[str, float] = self._kind.slots(self._group)
        """The state of a row by name, with the value it starts at."""

    @property
    def kind(self) -> str:
        """The name of the optimizer."""
        return self._rule.kind

    @property
    def rule(self) -> Rule:
        """The rule that is followed."""
        return self._rule

    @property
    def state(self) -> dict[str, Any]:
        """The optimizer's state of a dense parameter: tensors and numbers by name."""
        return dict(self._optimizer.state[self._parameter])

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Set the state of a dense parameter."""
        self._optimizer.state[self._parameter] = dict(state)

    def follow(self, rule: Rule) -> None:
        """Go on with other settings of the same kind, such as the learning rate of a scheduler."""
        if rule == self._rule:
            return
        check_change(self._rule, rule)
        checked = _optimizer(rule.kind, torch.nn.Parameter(torch.zeros(1)), _settings(rule))
        self._group.update({name: one for name, one in checked.param_groups[0].items() if name != "params"})
        self._rule = rule

    def update(self, gradient: torch.Tensor, *, scale_lr: float = 1.0) -> None:
        """One step of a dense parameter."""
        own = self._group["lr"]
        self._group["lr"] = own * scale_lr
        self._parameter.grad = gradient
        self._optimizer.step()
        self._parameter.grad = None
        self._group["lr"] = own

    def add_rows(self, values: Floats, rows: Rows, gradients: Floats, *, scale_lr: float) -> bool:
        """One step of distinct `rows` of `values`, where they lie; False if the rule is not simple enough for that."""
        if not can_add_in_place(self.kind, self._group):
            return False
        add_rows(values, rows, gradients, alpha=-self._group["lr"] * scale_lr)
        return True

    def update_rows(
        self,
        values: torch.Tensor,
        gradients: torch.Tensor,
        *,
        slots: Mapping[str, torch.Tensor],
        step: int,
        scale_lr: float = 1.0,
    ) -> None:
        """One step of a block of rows and their slots, in place; `step` is its number, from 1."""
        group = self._group
        with torch.no_grad():
            self._kind.update_rows(RowUpdate(values, gradients, slots, group, lr=group["lr"] * scale_lr, step=step))


@lru_cache(maxsize=_NUM_CHECKED)
def check_dense_rule(rule: Rule, dtype: torch.dtype) -> None:
    """Raise `InputError` for a rule that dense parameters of a type cannot follow, found out by a step of it."""
    if _kind(rule.kind).is_for_rows:
        raise InputError(f"{rule.kind} updates rows of tables, not dense parameters. Use Adam for these.")
    if not dtype.is_floating_point:
        raise InputError(f"parameters of {dtype} have no gradients, and cannot follow {rule.kind}.")
    check_dense_state(rule, torch.zeros(1, dtype=dtype), {})


def check_dense_state(rule: Rule, value: torch.Tensor, state: Mapping[str, Any]) -> None:
    """Raise `InputError` unless a parameter can go on with `state` by `rule`, found out by a step of one element."""
    for name, slot in state.items():
        if isinstance(slot, torch.Tensor) and slot.dim() and slot.shape != value.shape:
            raise InputError(
                f"the optimizer's state {name!r} must have the shape {tuple(value.shape)}, got {tuple(slot.shape)}."
            )
    what = "the optimizer's state does not fit" if state else "invalid settings of"
    with _refused(f"{what} {rule.kind} with {rule.settings}"):
        updater = Updater(rule, _first_element(value))
        if state:
            updater.load_state({name: _first_element(slot) for name, slot in state.items()})
        updater.update(torch.zeros_like(_first_element(value)))


def _first_element(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.reshape(-1)[:1].clone() if value.dim() else value.clone()


@lru_cache(maxsize=_NUM_CHECKED)
def check_rows_rule(rule: Rule) -> None:
    """Raise `InputError` for a rule that rows cannot follow, found out by a step of it."""
    settings = _settings(rule)
    if rule.kind == "SGD" and settings.get("dampening") and settings.get("momentum"):
        raise InputError(
            "SGD with dampening treats the first gradient of a row differently from the others, which rows on servers "
            f"do not: got dampening={settings['dampening']}. Set it to 0."
        )
    with _refused(f"invalid settings of {rule.kind} with {rule.settings}"):
        values = torch.zeros(1, 1)
        slots = {name: torch.full_like(values, first) for name, first in row_slots(rule).items()}
        Updater(rule, torch.empty(0)).update_rows(values, torch.zeros_like(values), slots=slots, step=1)


def check_change(before: Rule, after: Rule) -> None:
    """Raise `InputError` unless what followed one rule can go on by another one."""
    if after.kind != before.kind:
        raise InputError(f"this parameter is updated by {before.kind}, and cannot change to {after.kind}.")
    if row_slots(after).keys() != row_slots(before).keys():
        raise InputError(f"{after.kind} cannot change which state it keeps while it trains: {after.settings}.")


@lru_cache(maxsize=_NUM_CHECKED)
def row_slots(rule: Rule) -> Mapping[str, float]:
    """The state of a row by name, with the value it starts at."""
    return Updater(rule, torch.empty(0)).slots
