"""Parameters on servers: workers pull them, compute gradients, and push them; the servers apply the optimizer's rule.

Synchronous workers (`mode="sync"`) step together, as with `ddp`: a step is the mean of one push of each. Asynchronous
ones never wait for each other, unless `max_lead` is set: then no worker is more than so many pushes ahead of the
slowest. Worker processes also meet in a group, for metrics and checkpoints; gradients do not go through it.

Rows of `trek.nn.Embedding` are pulled when they are looked up, dense parameters after every step, or after every
`pull_period` steps: in between a worker goes on with its own optimizer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import nn

from trek.errors import ConfigError
from trek.ps.client import Client
from trek.ps.distinct_ids import sum_duplicates
from trek.ps.rules import Rule
from trek.ps.server_rows import ServerRows
from trek.ps.server_state import Mode
from trek.strategies.collectives import CollectiveStrategy
from trek.strategies.row_tables import RowStore
from trek.strategies.sparse import gather_rows
from trek.world import World

SERVER_ADDRESSES = "TREK_SERVER_ADDRESSES"
_POLL_S = 0.002


class ParameterServers(CollectiveStrategy):
    """Workers of parameter servers."""

    name = "ps"

    def __init__(
        self,
        world: World,
        *,
        mode: Literal["async", "sync"] = "async",
        servers: list[str] | None = None,
        pull_period: int = 1,
        max_lead: int | None = None,
        scale_lr_by_staleness: bool = False,
        backend: str | None = None,
        timeout_s: float = 1800.0,
        patience_s: float = 120.0,
    ) -> None:
        """`servers` are addresses; by default those of the job. One that is down is waited for `patience_s`."""
        super().__init__(world, backend=backend or "gloo", timeout_s=timeout_s)
        if mode not in ("async", "sync"):
            raise ConfigError(f"mode must be 'async' or 'sync', got {mode!r}.")
        if pull_period < 1 or (max_lead is not None and max_lead < 0):
            raise ConfigError(f"pull_period must be at least 1 and max_lead at least 0, got {pull_period}, {max_lead}.")
        if mode == "sync" and (pull_period > 1 or max_lead is not None or scale_lr_by_staleness):
            raise ConfigError("pull_period, max_lead and scale_lr_by_staleness are for mode 'async'.")
        self._is_sync = mode == "sync"
        self._mode = Mode(grads_to_wait=world.size if self._is_sync else 1, scale_lr_by_staleness=scale_lr_by_staleness)
        self._servers = servers
        self._pull_period = pull_period
        self._max_lead = max_lead
        self._patience_s = patience_s
        self._client: Client | None = None
        self._names: dict[int, str] = {}
        self._dense: dict[str, torch.Tensor] = {}
        self._num_models = 0
        self._num_pushes = 0
        self._version = 0

    @property
    def client(self) -> Client:
        """The servers."""
        assert self._client is not None, "setup connects to the servers"
        return self._client

    def setup(self) -> None:
        """Join the group, and connect to the servers."""
        addresses = self._servers or [one for one in os.environ.get(SERVER_ADDRESSES, "").split(",") if one]
        if not addresses:
            raise ConfigError(
                "strategy 'ps' needs parameter servers. Set servers=1 or more (resources.servers in YAML), or start "
                "some with `trek ps serve` and pass strategy_options={'servers': ['host:port', …]}."
            )
        super().setup()
        source = f"worker/{self.world.rank:05d}"
        self._client = Client(addresses, secret=self.world.secret, source=source, patience_s=self._patience_s)
        self._num_pushes = self._client.progress(prefix=source).get(source, 0)

    def teardown(self) -> None:
        """Disconnect from servers and workers."""
        super().teardown()
        if self._client is not None:
            self._client.close()

    def open_rows(self) -> RowStore:
        """On the servers."""
        return ServerRows(self.client, is_leader=self.world.is_leader)

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Give the servers the leader's parameters, and take theirs."""
        if self.world.is_leader:
            self.client.push_model(mode=self._mode)
        self.barrier()
        model = super().wrap_model(model)
        own = {f"{self._num_models}/{name}": p for name, p in model.named_parameters() if p.numel()}
        self._num_models += 1
        self._names.update({id(parameter): name for name, parameter in own.items()})
        self._dense.update(own)
        if self.world.is_leader:
            self.client.push_model(own, mode=self._mode)
        self.barrier()
        self.client.forget_versions()
        self._pull()
        return model

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """As with ddp: a synchronous step is the mean of all pushes, an asynchronous one that of its own samples."""
        return num_samples * self.world.size / global_samples

    def step(self, optimizer: torch.optim.Optimizer, apply: Callable[[torch.optim.Optimizer], None]) -> None:
        """Push the gradients, and pull what came of them."""
        dense, rules = self._gradients(optimizer)
        rows: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, ids, gradients, rule in self.tables.gradients(optimizer) if self.tables is not None else ():
            rows[name], rules[name] = (ids, gradients), rule
        self._num_pushes += 1
        self.client.push_gradients(dense, rows=rows, rules=rules, sequence=self._num_pushes)
        if self._max_lead is not None:
            self._wait_for_others()
        if self._num_pushes % self._pull_period:
            apply(optimizer)
        else:
            self._version += 1
            self._pull(min_version=self._version if self._is_sync else 0)

    def clip_norm(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """By the norm of the step: of the mean over workers if they are synchronous, else of this worker's push."""
        given = list(parameters)
        if not self._is_sync or self.world.size == 1:
            return super().clip_norm(given, max_norm)
        own = [one.grad for one in self.with_rows(given) if one.grad is not None]
        norm = nn.utils.get_total_norm(self._mean_gradients(given))
        for gradient in own:
            gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

    def _mean_gradients(self, parameters: list[nn.Parameter]) -> list[torch.Tensor]:
        """The gradients of the step, as the servers will have them."""
        size = self.world.size
        dense = [p for p in parameters if p.numel() and p.requires_grad]
        zero = [p.grad.to_dense() if p.grad is not None else torch.zeros_like(p) for p in dense]
        means = [self.reduce(gradient) / size for gradient in zero]
        for module in self.tables.modules_of(parameters) if self.tables is not None else ():
            empty = torch.empty(0, dtype=torch.int64), torch.empty(0, module.spec.dim)
            ids, values = gather_rows(*(module.gradients() or empty), num_ranks=size, device=self.world.device)
            _, sums = sum_duplicates(ids.cpu().numpy(), values.cpu().numpy())
            means.append(torch.from_numpy(sums) / size)
        return means

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

    def model_state(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The servers' values."""
        self.barrier()
        self._pull()
        return super().model_state(model)

    def load_model_state(self, model: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Load on every rank; `load_optimizer_state` gives the servers what belongs to an optimizer."""
        super().load_model_state(model, state)
        self.barrier()

    def optimizer_state(self, model: nn.Module | None, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The servers' state."""
        slots = self.client.pull_state() if self.world.is_leader else {}
        own = dict(optimizer.state)
        for parameter in self._parameters(optimizer):
            optimizer.state[parameter] = dict(slots.get(self._names[id(parameter)], {}))
        try:
            return super().optimizer_state(model, optimizer)
        finally:
            optimizer.state.clear()
            optimizer.state.update(own)

    def load_optimizer_state(
        self, model: nn.Module | None, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Give the servers the parameters of an optimizer and its state."""
        super().load_optimizer_state(model, optimizer, state)
        dense = {self._names[id(p)]: p for p in self._parameters(optimizer)}
        slots = {name: _tensors(optimizer.state[p]) for name, p in dense.items()}
        rules = {self._names[id(p)]: rule for p, rule in self._rules(optimizer)}
        if self.world.is_leader:
            self.client.put_dense(dense, state=slots, rules=rules)
        if self._pull_period == 1:
            optimizer.state.clear()
        self.barrier()
        self.client.forget_versions()
        self._pull()

    def _gradients(self, optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, Rule]]:
        dense: dict[str, torch.Tensor] = {}
        rules: dict[str, Rule] = {}
        for parameter, rule in self._rules(optimizer):
            if parameter.grad is not None:
                name = self._names[id(parameter)]
                dense[name] = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                rules[name] = rule
        return dense, rules

    def _rules(self, optimizer: torch.optim.Optimizer) -> Iterable[tuple[nn.Parameter, Rule]]:
        for group in optimizer.param_groups:
            rule = Rule.of(optimizer, group)
            yield from ((parameter, rule) for parameter in group["params"] if id(parameter) in self._names)

    def _parameters(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        return [parameter for parameter, _ in self._rules(optimizer)]

    def _pull(self, *, min_version: int = 0) -> None:
        self.client.pull_dense(min_version=min_version, into=self._dense)
        self._version = max(self._version, *self.client.versions)

    def _wait_for_others(self) -> None:
        """Let the slowest worker catch up: bounded staleness, without a push that is computed in vain."""
        assert self._max_lead is not None
        deadline = time.monotonic() + self.timeout_s
        while True:
            done = self.client.progress(prefix="worker/")
            slowest = min((done.get(f"worker/{rank:05d}", 0) for rank in range(self.world.size)), default=0)
            if self._num_pushes - slowest <= self._max_lead or time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)


def _tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {slot: value for slot, value in state.items() if isinstance(value, torch.Tensor)}
