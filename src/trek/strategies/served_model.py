"""ServedModel: the dense parameters of a run's models on parameter servers, and the pushes and pulls of one worker.

Knows which parameter has which name there, and by which rule an optimizer updates it. Which workers there are, and who
of them does what all need only once, is the business of the strategies that use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from trek.errors import ConfigError
from trek.ps.addresses import SERVER_ADDRESSES
from trek.ps.client import Client, PushResult
from trek.ps.row_prefetch import RowPrefetch
from trek.ps.rules import Rule
from trek.ps.server_state import Mode
from trek.strategies.row_tables import RowTables

_OF_ASYNC = ("pull_period", "max_lead", "scale_lr_by_staleness", "grads_to_wait", "version_tolerance")


@dataclass(frozen=True)
class ServerOptions:
    """The options of strategy `ps`."""

    mode: Literal["async", "sync"] = "async"
    servers: Sequence[str] | None = None
    """Addresses; by default those of the job."""
    pull_period: int = 1
    max_lead: int | None = None
    scale_lr_by_staleness: bool = False
    grads_to_wait: int | None = None
    version_tolerance: int | None = None
    patience_s: float = 120.0
    """How long a server that is down is waited for."""

    def __post_init__(self) -> None:
        if self.mode not in ("async", "sync"):
            raise ConfigError(f"mode must be 'async' or 'sync', got {self.mode!r}.")
        if self.pull_period < 1 or (self.max_lead is not None and self.max_lead < 0):
            raise ConfigError(
                f"pull_period must be at least 1 and max_lead at least 0, got {self.pull_period}, {self.max_lead}."
            )
        if (self.grads_to_wait or 1) < 1 or (self.version_tolerance or 0) < 0:
            raise ConfigError(
                "grads_to_wait must be at least 1 and version_tolerance at least 0, "
                f"got {self.grads_to_wait}, {self.version_tolerance}."
            )
        own = [name for name in _OF_ASYNC if getattr(self, name) != getattr(type(self), name)]
        if self.is_sync and own:
            raise ConfigError(
                f"{own[0]} is for mode 'async': in mode 'sync' a step is the mean of one push of each worker, and none "
                "is ever too old. Remove it, or use mode 'async'."
            )

    def server_mode(self, num_workers: int) -> Mode:
        """When servers apply pushes."""
        return Mode(
            grads_to_wait=num_workers if self.is_sync else self.grads_to_wait or 1,
            max_staleness=-1 if self.version_tolerance is None else self.version_tolerance,
            scale_lr_by_staleness=self.scale_lr_by_staleness,
        )

    @property
    def is_sync(self) -> bool:
        """Whether workers step together."""
        return self.mode == "sync"

    def addresses(self, environ: Mapping[str, str] = os.environ) -> list[str]:
        """Where the servers are; ConfigError if there are none."""
        found = list(self.servers or ()) or [one for one in environ.get(SERVER_ADDRESSES, "").split(",") if one]
        if not found:
            raise ConfigError(
                "strategy 'ps' needs parameter servers. Set servers=1 or more (resources.servers in YAML), or start "
                "some with `trek ps serve` and pass strategy_options={'servers': ['host:port', …]}."
            )
        return found


class ServedModel:
    """One worker's side."""

    def __init__(self, open_client: Callable[[], Client], *, mode: Mode) -> None:
        self.client = open_client()
        self.prefetch = RowPrefetch(open_client)
        self._mode = mode
        self._names: dict[int, str] = {}
        self._dense: dict[str, torch.Tensor] = {}
        self._num_models = 0
        self.version = 0
        """The newest version of any server that was pulled."""

    def close(self) -> None:
        """Disconnect."""
        self.prefetch.close()
        self.client.close()

    def add(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Give the parameters of a model their names on the servers."""
        own = {f"{self._num_models}/{name}": p for name, p in model.named_parameters() if p.numel()}
        self._num_models += 1
        self._names.update({id(parameter): name for name, parameter in own.items()})
        self._dense.update(own)
        return dict(own)

    def offer(self, dense: Mapping[str, torch.Tensor] | None = None) -> None:
        """Give the servers the mode of the run, and parameters, unless they have them."""
        self.client.push_model(dense, mode=self._mode)

    def push(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        tables: RowTables | None,
        source: str | None = None,
        sequence: int,
    ) -> PushResult:
        """Push the gradients of an optimizer's parameters and rows, by its rules.

        `source` and `sequence` name the work; another worker may have computed it before, with other parameters.
        """
        dense: dict[str, torch.Tensor] = {}
        rules: dict[str, Rule] = {}
        rows: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for parameter, rule in self._rules(optimizer):
            if parameter.grad is not None:
                name = self._names[id(parameter)]
                dense[name] = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                rules[name] = rule
        for name, ids, gradients, rule in tables.gradients(optimizer) if tables is not None else ():
            rows[name], rules[name] = (ids, gradients), rule
        self.prefetch.note_push({name: ids for name, (ids, _) in rows.items()})
        return self.client.push_gradients(
            dense, rows=rows, rules=rules, source=source, sequence=sequence, may_differ=True
        )

    def pull(self, *, min_version: int = 0, is_all: bool = False) -> None:
        """Take over what changed on the servers, or everything."""
        if is_all:
            self.client.forget_versions()
        self.client.pull_dense(min_version=min_version, into=self._dense)
        self.version = max(self.version, *self.client.versions)

    def put(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace the parameters of an optimizer on the servers, and its state, by what this worker has."""
        rules = {self._names[id(p)]: rule for p, rule in self._rules(optimizer)}
        dense = {self._names[id(p)]: p for p, _ in self._rules(optimizer)}
        slots = {name: _tensors(optimizer.state[p]) for name, p in dense.items()}
        self.client.put_dense(dense, state=slots, rules=rules)

    def put_all(self) -> None:
        """Replace all parameters by what this worker has, without a state of optimizers."""
        self.client.put_dense(self._dense, state={}, rules={})

    @contextmanager
    def states_in(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Within the block, an optimizer has what the servers keep for its parameters."""
        slots, own = self.client.pull_state(), dict(optimizer.state)
        for parameter, _ in self._rules(optimizer):
            optimizer.state[parameter] = dict(slots.get(self._names[id(parameter)], {}))
        try:
            yield
        finally:
            optimizer.state.clear()
            optimizer.state.update(own)

    def figures(self) -> dict[str, float]:
        """Rows, bytes and versions of all servers, and how old pushes were on average."""
        found = self.client.stats()
        tables = [table for server in found for table in server["tables"].values()]
        ages = [(int(age), count) for server in found for age, count in server["staleness"].items()]
        return {
            "ps_rows": float(sum(table["rows"] for table in tables)),
            "ps_bytes": float(sum(table["bytes"] for table in tables) + sum(one["dense"]["bytes"] for one in found)),
            "ps_version": float(max(server["version"] for server in found)),
            "ps_staleness": sum(age * count for age, count in ages) / max(1, sum(count for _, count in ages)),
        }

    def _rules(self, optimizer: torch.optim.Optimizer) -> Iterable[tuple[nn.Parameter, Rule]]:
        for group in optimizer.param_groups:
            rule = Rule.of(optimizer, group)
            yield from ((parameter, rule) for parameter in group["params"] if id(parameter) in self._names)


def _tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {slot: value for slot, value in state.items() if isinstance(value, torch.Tensor)}
