"""Replicas: what every rank adds to a run must be equal; otherwise ranks would train different things without an error.

Facts are texts by name, in order. Ranks compare a digest of all that was added so far, which costs one small message,
and exchange the facts themselves only if they differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from trek.data.loaders import Loader
from trek.errors import InputError
from trek.ps.embedding import row_modules
from trek.strategies import Strategy
from trek.train.loop.optimizer_settings import plain_settings

Facts = dict[str, str]


_OF_PARTS = (
    "Build models, optimizers and schedulers from the same values on every rank, not from a rank's own files or number."
)


def check_equal(strategy: Strategy, facts: Facts, *, remedy: str = _OF_PARTS) -> None:
    """Raise `InputError` on every rank unless the facts of all are equal; called on all ranks together."""
    digest = hashlib.sha256(json.dumps([*facts.items()]).encode()).digest()
    own = int.from_bytes(digest[:7], "big")
    if strategy.reduce(torch.tensor([own, -own]), "max").tolist() == [own, -own]:
        return
    difference = _first_difference([dict(items) for items in strategy.gather([*facts.items()])])
    raise InputError(f"ranks must train equal replicas, but {difference}. {remedy}")


def model_facts(model: nn.Module) -> Facts:
    """Name, type, shape and whether it is trained, of each parameter, buffer and table."""
    facts = {f"parameter {name!r}": _of_parameter(p) for name, p in model.named_parameters()}
    facts |= {f"buffer {name!r}": _of_tensor(buffer) for name, buffer in model.named_buffers()}
    return facts | {f"table {module.spec.name!r}": module.spec.model_dump_json() for module in row_modules(model)}


def optimizer_facts(optimizer: torch.optim.Optimizer, models: Sequence[nn.Module]) -> Facts:
    """Kind, parameters in their order, and settings of an optimizer of some of the `models`."""
    names = {id(p): name for model in models for name, p in model.named_parameters()}
    facts = {"kind": type(optimizer).__name__}
    for number, (group, settings) in enumerate(zip(optimizer.param_groups, plain_settings(optimizer), strict=True)):
        for index, parameter in enumerate(group["params"]):
            facts[f"parameter {index} of param group {number}"] = repr(names.get(id(parameter), "unknown"))
        facts |= {f"{key} of param group {number}": repr(value) for key, value in settings.items()}
    return facts


def scheduler_facts(scheduler: Any, *, per: str, every: int) -> Facts:
    """Kind, unit, and the numbers in the state of a scheduler."""
    numbers = {key: repr(value) for key, value in scheduler.state_dict().items() if _is_numeric(value)}
    return {"kind": type(scheduler).__name__, "unit": f"{every} {per}", **numbers}


def check_data(strategy: Strategy, loader: Loader) -> None:
    """The same for the data that all ranks train on: one that reads fewer batches would leave the others waiting."""
    facts = {
        "the number of batches of an epoch": str(loader.num_batches),
        "the number of records of a global batch": str(loader.batch_records),
    }
    check_equal(strategy, facts, remedy="Give every rank the same data and batch size; it takes its own share.")


def _of_parameter(parameter: nn.Parameter) -> str:
    return _of_tensor(parameter) + ("" if parameter.requires_grad else ", not trained")


def _of_tensor(tensor: torch.Tensor) -> str:
    shape = "a shape that is not known yet" if is_lazy(tensor) else f"shape {tuple(tensor.shape)}"
    return f"{str(tensor.dtype).removeprefix('torch.')} of {shape}"


def _is_numeric(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_numeric, value))
    return isinstance(value, bool | int | float)


def _first_difference(of_ranks: Sequence[Facts]) -> str:
    first = of_ranks[0]
    rank, other = next((rank, one) for rank, one in enumerate(of_ranks) if [*one.items()] != [*first.items()])
    for name in [*first, *other]:
        if first.get(name) != other.get(name):
            return f"{name} is {first.get(name, 'missing')} on rank 0 and {other.get(name, 'missing')} on rank {rank}"
    own, its = next(pair for pair in zip(first, other, strict=True) if pair[0] != pair[1])
    return f"{own} on rank 0 is where {its} is on rank {rank}"
