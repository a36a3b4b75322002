"""`elasticdl.python.worker.ps_client`: PSClient over `trek.ps.Client`.

Servers apply torch's optimizers, so the client says which; a push names only the learning rate, as there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

import trek
from trek.errors import InputError


class Tensor(NamedTuple):
    """A named tensor; with `indices`, rows of an embedding table."""

    name: str
    values: torch.Tensor
    indices: Any = None


class EmbeddingTableInfo(NamedTuple):
    """What a table of embedding rows is."""

    name: str
    dim: int
    initializer: str = "uniform"
    dtype: str = "float32"


class PSClient:
    """A worker's view of the parameter servers, given by their addresses (`host:port`) or by a `trek.ps.Client`."""

    def __init__(
        self, ps_stubs: str | Sequence[str] | trek.ps.Client, *, optimizer: str = "SGD", **optimizer_args: Any
    ) -> None:
        self.client = ps_stubs if isinstance(ps_stubs, trek.ps.Client) else trek.ps.Client(ps_stubs)
        self.ps_stubs = ps_stubs
        self.ps_num = self.client.num_servers
        self.parameter_to_ps: dict[str, int] = {}
        self.ps_to_parameter: dict[int, list[str]] = {}
        self._optimizer, self._optimizer_args = optimizer, optimizer_args
        self._waiting: dict[str, torch.Tensor] = {}
        trek.ps.Rule.named(optimizer, **optimizer_args)  # a wrong name or argument is told now

    def close(self) -> None:
        """Disconnect."""
        self.client.close()

    def partition_dense_parameters(self, param_names: Iterable[str]) -> None:
        """Decide which server is asked for which parameter, by a hash of its name.

        Where the values lie is decided by the servers' client, which also divides large ones.
        """
        for name in param_names:
            ps_id = int(hashlib.sha256(name.encode()).hexdigest(), 16) % self.ps_num
            if name not in self.parameter_to_ps:
                self.parameter_to_ps[name] = ps_id
                self.ps_to_parameter.setdefault(ps_id, []).append(name)

    def push_embedding_table_infos(self, infos: Iterable[EmbeddingTableInfo]) -> None:
        """Have tables of embedding rows."""
        specs = [
            trek.ps.TableSpec.of(name=one.name, dim=one.dim, initial={"kind": one.initializer}, dtype=one.dtype)
            for one in infos
        ]
        self.client.add_tables(specs)

    def push_dense_parameters(self, parameters: Iterable[Tensor], ps_id: int, version: int = 0) -> None:
        """Give the servers their first values; once they have a model, it stays as it is.

        Parameters of one server after the other are sent together, when the last of the partition is there.
        """
        if not 0 <= ps_id < self.ps_num:
            raise InputError(f"ps_id must be from 0 to {self.ps_num - 1}, got {ps_id!r}.")
        self._waiting.update({one.name: one.values for one in parameters})
        if set(self.parameter_to_ps) <= set(self._waiting):
            waiting, self._waiting = self._waiting, {}
            self.client.push_model(waiting)

    def pull_dense_parameters(
        self, ps_ids: Iterable[int] | None = None, model_versions: Sequence[int] | None = None
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        """The dense parameters by name, and the servers that have none yet."""
        found = self.client.pull_dense()
        wanted = set(range(self.ps_num)) if ps_ids is None else set(ps_ids)
        own = {name: value for name, value in found.items() if self.parameter_to_ps.get(name, min(wanted)) in wanted}
        return own, [] if found else sorted(wanted)

    def pull_embedding_vectors(self, layer_name: str, embedding_ids: Any) -> torch.Tensor:
        """The rows of these ids, in their order."""
        return self.client.pull_rows(layer_name, embedding_ids)

    def push_gradients(
        self,
        grads: Iterable[Tensor] | Mapping[str, torch.Tensor],
        edl_grads: Iterable[Tensor] = (),
        learning_rate: float | None = None,
        model_versions: Sequence[int] | None = None,
    ) -> tuple[bool, int]:
        """Have gradients applied: of dense parameters, and of rows, whose duplicate ids are summed.

        Returns whether they were accepted, and the version of the model.
        """
        dense = dict(grads) if isinstance(grads, Mapping) else {one.name: one.values for one in grads}
        rows = {one.name: (one.indices, one.values) for one in edl_grads}
        settings = {**self._optimizer_args, **({} if learning_rate is None else {"lr": learning_rate})}
        result = self.client.push_gradients(dense, rows=rows, rule=trek.ps.Rule.named(self._optimizer, **settings))
        return result.accepted, max(result.versions)


def build_ps_client(ps_addrs: str, *, optimizer: str = "SGD", **optimizer_args: Any) -> PSClient | None:
    """A PSClient of `host:port,host:port`; None for an empty text, as there."""
    return PSClient(ps_addrs, optimizer=optimizer, **optimizer_args) if ps_addrs else None
