"""Client: parameters and rows on servers, from any Python program.

    client = trek.ps.Client(["127.0.0.1:7164"])
    client.push_model({"weight": weight}, tables=[trek.ps.TableSpec(name="user", dim=16)])
    rows = client.pull_rows("user", ids)
    client.push_gradients({"weight": gradient}, rows={"user": (ids, gradients)}, rule=trek.ps.Rule.named("Adam"))

Requests to several servers are under way at the same time. A client may be used from one thread.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from trek.errors import InputError
from trek.ps.distinct_ids import split_by_server
from trek.ps.id_index import Ids
from trek.ps.moves import following_moves, move_all, restore_all, save_all
from trek.ps.placement import parts_of
from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Attachments, Bytes, bits_of, tensor_of
from trek.ps.push_digest import push_digest
from trek.ps.push_numbers import PushNumbers
from trek.ps.push_rules import PushRules
from trek.ps.row_copies import gather, scatter
from trek.ps.rules import Rule
from trek.ps.server_group import Request, ServerGroup
from trek.ps.server_state import Mode
from trek.ps.table_rows import PORTION_ROWS, RowCollector, TableRows
from trek.ps.table_spec import TableSpec

RowGradients: TypeAlias = Mapping[str, tuple[Any, torch.Tensor]]
_WAIT_MS = 1_000


@dataclass(frozen=True)
class PushResult:
    """The servers' answer to a push."""

    accepted: bool
    """False if a server found the gradients too old: compute them anew and push them with the same sequence."""
    versions: tuple[int, ...]
    """Of each server."""
    is_repeated: bool = False
    """Whether a server had applied a push with this source and number before, and did not apply this one."""


class Client:
    """The servers of one model."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        secret: str = "",
        source: str | None = None,
        patience_s: float = 60.0,
    ) -> None:
        """`source` names the pushes of this client among those of all; by default it is unique.

        A client with the source of an earlier one goes on after its last push. Two at a time must not share a source.
        A server that cannot be reached is tried again for `patience_s`.
        """
        texts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
        if not texts:
            raise InputError("a client needs the address of at least one parameter server, got none.")
        self._servers = ServerGroup(texts, secret=secret, patience_s=patience_s)
        self._source = source or uuid.uuid4().hex
        self._numbers = PushNumbers(self._last_number if source else lambda: 0)
        self._rejected: tuple[str, int] | None = None
        """Source and number of a push that was too old for some servers, which others may have applied."""
        self._shapes: dict[str, torch.Size] = {}
        self._dense: dict[str, torch.Tensor] = {}
        self.versions = [-1] * len(self._servers)
        """Of each server, as of the last `pull_dense`."""

    @property
    def num_servers(self) -> int:
        """How many servers there are."""
        return len(self._servers)

    def close(self) -> None:
        """Disconnect."""
        self._servers.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the model

    @following_moves
    def push_model(
        self,
        dense: Mapping[str, torch.Tensor] | None = None,
        *,
        tables: Iterable[TableSpec] = (),
        mode: Mode | None = None,
    ) -> bool:
        """Give the servers their model; whether they had none. What they have already stays as it is."""
        mode = mode or Mode()
        described = pb.Mode(
            grads_to_wait=mode.grads_to_wait,
            max_staleness=mode.max_staleness,
            scale_lr_by_staleness=mode.scale_lr_by_staleness,
        )
        infos = pb.TableInfos(specs=[spec.model_dump_json() for spec in tables])
        requests = [(pb.Model(mode=described, tables=infos), Attachments()) for _ in range(self.num_servers)]
        for name, tensor in (dense or {}).items():
            self._shapes[name] = tensor.shape
            for server, part, start in self._parts(name, tensor):
                model, attached = requests[server]
                model.dense.append(attached.add(part, name=name, offset=start))
        answers = self._servers.ask([(pb.Envelope(push_model=model), attached) for model, attached in requests])
        return not any(answer.pushed_model.was_initialized for answer, _ in answers)

    @following_moves
    def add_tables(self, tables: Iterable[TableSpec]) -> None:
        """Have further tables; those that exist must be the same."""
        infos = pb.TableInfos(specs=[spec.model_dump_json() for spec in tables])
        self._servers.ask_all(pb.Envelope(push_embedding_table_infos=infos))

    @following_moves
    def pull_dense(self, *, min_version: int = 0, into: Mapping[str, torch.Tensor] | None = None) -> Any:
        """The dense parameters by name; those that did not change since the last call are not sent again.

        With `into`, they are copied into these tensors instead, and the names of those that changed are returned.
        `min_version` waits until every server has it.
        """
        known = self.versions if into is not None or self._dense else [-1] * self.num_servers
        waiting = list(range(self.num_servers))
        changed: set[str] = set()
        while waiting:
            requests = {
                server: pb.PullModelRequest(version=known[server], min_version=min_version, wait_ms=_WAIT_MS)
                for server in waiting
            }
            answers = self._servers.ask_some(
                {server: (pb.Envelope(pull_variable=one), None) for server, one in requests.items()}
            )
            for server, (answer, body) in answers.items():
                if answer.model.version >= min_version:
                    waiting.remove(server)
                    self.versions[server] = answer.model.version
                    changed |= self._take(answer.model, body, into)
        return changed if into is not None else dict(self._dense)

    @following_moves
    def pull_state(self) -> dict[str, dict[str, torch.Tensor]]:
        """The state of the optimizers of the dense parameters, by name."""
        wanted = pb.PullModelRequest(version=-1, with_state=True)
        answers = self._servers.ask_all(pb.Envelope(pull_variable=wanted))
        parts: dict[str, dict[str, dict[int, torch.Tensor]]] = {}
        for answer, body in answers:
            for one in answer.model.state:
                parts.setdefault(one.name, {}).setdefault(one.slot, {})[one.offset] = tensor_of(one, body)
        return {
            name: {slot: self._joined(name, pieces) for slot, pieces in slots.items()} for name, slots in parts.items()
        }

    def _joined(self, name: str, pieces: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The state of a whole parameter; what is one number, such as its step, is the same everywhere."""
        first = pieces[min(pieces)]
        if first.dim() == 0 or len(pieces) == 1:
            return first
        return torch.cat([pieces[start].reshape(-1) for start in sorted(pieces)]).view(self._shapes[name])

    @following_moves
    def put_dense(
        self,
        dense: Mapping[str, torch.Tensor],
        *,
        state: Mapping[str, Mapping[str, torch.Tensor]],
        rules: Mapping[str, Rule],
    ) -> None:
        """Replace dense parameters and the state of their optimizers, as after loading a checkpoint.

        Without `rules`, there is no state.
        """
        numbers = PushRules(None, rules)
        requests = [(pb.PutModelRequest(), Attachments()) for _ in range(self.num_servers)]
        for name, tensor in dense.items():
            index = numbers.index(name) if rules else 0
            for server, part, start in self._parts(name, tensor):
                request, attached = requests[server]
                request.dense.append(attached.add(part, name=name, offset=start, rule=index))
                for slot, value in state.get(name, {}).items():
                    own = value.reshape(-1)[start : start + part.numel()] if value.dim() else value
                    own = own.view(part.shape) if value.dim() else own
                    request.state.append(attached.add(own.cpu(), name=name, offset=start, slot=slot))
        for request, _ in requests:
            request.rules.extend(numbers.described())
        self._servers.ask([(pb.Envelope(put_model=request), attached) for request, attached in requests])

    def forget_versions(self) -> None:
        """Have everything sent again by the next `pull_dense`, as after a restore."""
        self.versions = [-1] * self.num_servers

    def _take(self, model: pb.PullModelResponse, body: Bytes, into: Mapping[str, torch.Tensor] | None) -> set[str]:
        """Copy what was received to where it belongs."""
        names = set()
        for one in model.dense:
            values = tensor_of(one, body)
            names.add(one.name)
            is_whole = one.offset == 0 and (one.name not in self._shapes or values.shape == self._shapes[one.name])
            if into is None and is_whole:
                self._dense[one.name] = values
                continue
            target = into[one.name] if into is not None else self._target(one.name)
            flat = target.detach().reshape(-1)  # a copy, unless the values lie in this order, as in channels_last
            flat[one.offset : one.offset + values.numel()].copy_(values.view(-1))
            if not target.is_contiguous():
                target.detach().copy_(flat.view(target.shape))
        return names

    def _target(self, name: str) -> torch.Tensor:
        if name not in self._shapes:
            raise InputError(f"{name!r} is split over servers; push_model or pull_dense(into=…) tells its shape.")
        if name not in self._dense:
            self._dense[name] = torch.empty(self._shapes[name])
        return self._dense[name]

    # -- rows

    @following_moves
    def pull_rows(self, table: str, ids: Any) -> torch.Tensor:
        """The rows of `ids` (a list, array or tensor of whole numbers), in their order."""
        wanted = _ids(ids)
        if self.num_servers == 1:
            [(answer, body)] = self._servers.ask([self._pull_request(table, wanted)])
            return tensor_of(answer.vectors, body)
        order, starts = split_by_server(wanted, num_servers=self.num_servers)
        parts = [order[starts[server] : starts[server + 1]] for server in range(self.num_servers)]
        answers = self._servers.ask([self._pull_request(table, wanted[part]) for part in parts])
        received = [tensor_of(answer.vectors, body) for answer, body in answers]
        rows = received[0].new_empty((len(wanted), received[0].shape[1]))
        for part, values in zip(parts, received, strict=True):
            scatter(bits_of(rows), part, bits_of(values))
        return rows

    def _pull_request(self, table: str, ids: Ids) -> Request:
        attached = Attachments()
        wanted = pb.PullEmbeddingVectorRequest(name=table, ids=attached.add(torch.from_numpy(ids)))
        return pb.Envelope(pull_embedding_vector=wanted), attached

    # -- gradients

    @following_moves
    def push_gradients(
        self,
        dense: Mapping[str, torch.Tensor] | None = None,
        *,
        rows: RowGradients | None = None,
        rule: Rule | None = None,
        rules: Mapping[str, Rule] | None = None,
        source: str | None = None,
        sequence: int | None = None,
        may_differ: bool = False,
    ) -> PushResult:
        """Have gradients applied: by `rule`, or by the rule of each parameter or table in `rules`.

        The servers sum gradients of the same id. `source` and `sequence` identify the push: one that was applied before
        is not applied again, whoever repeats it, and another one with the number of the last is refused. With
        `may_differ`, they identify work that may be computed again to other gradients, of which the first ones count.
        By default they count the pushes of this client: a push that failed goes on under its number if it is repeated.
        """
        described = PushRules(rule, rules or {})
        own = {name: gradient.detach().cpu() for name, gradient in (dense or {}).items()}
        blocks = {table: _row_block(ids, gradients) for table, (ids, gradients) in (rows or {}).items()}
        digest = b"" if may_differ else push_digest(own, blocks, described.rule)
        requests = self._push_requests(own, blocks, described)
        number = self._numbers.take(digest) if sequence is None else sequence
        identity = source or self._source, number
        for server, (request, _) in enumerate(requests):
            request.source, request.sequence = identity
            request.digest = b"" if identity == self._rejected else digest
            request.version = max(0, self.versions[server])
        answers = self._servers.ask([(pb.Envelope(push_gradient=request), attached) for request, attached in requests])
        pushed = [answer.pushed for answer, _ in answers]
        is_accepted = all(one.accepted for one in pushed)
        self._rejected = None if is_accepted else identity
        if sequence is None:
            self._numbers.settle(is_accepted=is_accepted)
        is_repeated = any(one.is_repeated for one in pushed)
        return PushResult(is_accepted, tuple(one.version for one in pushed), is_repeated)

    def _last_number(self) -> int:
        """The number of the last push of this client's source that any server has applied."""
        answers = self._servers.ask_all(pb.Envelope(progress=pb.ProgressRequest(prefix=self._source)))
        return max(answer.made.sequences.get(self._source, 0) for answer, _ in answers)

    @following_moves
    def flush(self) -> None:
        """Have pushes applied that wait for others of their step, by their mean; nobody should push meanwhile."""
        self._servers.ask_all(pb.Envelope(flush=pb.FlushRequest()))

    def _push_requests(
        self, dense: Mapping[str, torch.Tensor], rows: Mapping[str, tuple[Ids, torch.Tensor]], rules: PushRules
    ) -> list[tuple[pb.PushGradientRequest, Attachments]]:
        requests = [(pb.PushGradientRequest(), Attachments()) for _ in range(self.num_servers)]
        for name, gradient in dense.items():
            index = rules.index(name)
            for server, part, start in self._parts(name, gradient):
                request, attached = requests[server]
                request.dense.append(attached.add(part, name=name, offset=start, rule=index))
        for table, (ids, gradients) in rows.items():
            index = rules.index(table)
            for server, own, values in self._row_parts(ids, gradients):
                request, attached = requests[server]
                described = pb.Rows(table=table, ids=attached.add(own), values=attached.add(values), rule=index)
                request.rows.append(described)
        for request, _ in requests:
            request.rules.extend(rules.described())
        return requests

    def _parts(self, name: str, tensor: torch.Tensor) -> list[tuple[int, torch.Tensor, int]]:
        """The parts of a dense tensor: server, values, first element."""
        parts = parts_of(name, tensor.numel(), num_servers=self.num_servers)
        own = tensor.detach().cpu()
        if len(parts) == 1:
            return [(parts[0].server, own, 0)]
        flat = own.reshape(-1)
        return [(part.server, flat[part.start : part.stop], part.start) for part in parts]

    def _row_parts(self, ids: Ids, gradients: torch.Tensor) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        values = gradients.numpy()
        if self.num_servers == 1:
            return [(0, torch.from_numpy(ids), torch.from_numpy(values))]
        order, starts = split_by_server(ids, num_servers=self.num_servers)
        ids, values = ids[order], gather(values, order)
        return [
            (server, torch.from_numpy(ids[start:stop]), torch.from_numpy(values[start:stop]))
            for server, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
            if stop > start
        ]

    # -- whole tables, checkpoints, figures

    def export_rows(self, table: str, *, since: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """The ids and rows of a table that were pushed after version `since`, of all servers.

        They lie in a temporary file, so they need not fit into memory.
        """
        found = self.export_state(table, since=since, with_slots=False)
        return found.ids, found.values

    @following_moves
    def export_state(self, table: str, *, since: int = 0, with_slots: bool = True) -> TableRows:
        """The rows of a table with their optimizer state, read in portions, in temporary files."""
        collected = RowCollector()
        for server in range(self.num_servers):
            start = 0
            while True:
                wanted = pb.PullTableRequest(
                    name=table, since=since, start=start, max_rows=PORTION_ROWS, with_slots=with_slots
                )
                answer, body = self._servers.ask_some({server: (pb.Envelope(pull_table=wanted), None)})[server]
                collected.add(TableRows.of(answer.rows, body))
                start = answer.rows.next
                if not start:
                    break
        return collected.finish()

    @following_moves
    def put_rows(self, table: str, state: TableRows, *, rule: Rule | None = None, replaces: bool = False) -> None:
        """Set rows of a table, with their optimizer state if there is one; `rule` is needed for that.

        With `replaces`, all other rows are removed.
        """
        for number, part in enumerate(state.portions()):
            self._put_portion(table, part, rule=rule, replaces=replaces and number == 0)

    def _put_portion(self, table: str, state: TableRows, *, rule: Rule | None, replaces: bool) -> None:
        ids = _ids(state.ids)
        order, starts = split_by_server(ids, num_servers=self.num_servers)
        requests: dict[int, Request] = {}
        for server in range(self.num_servers):
            part = torch.from_numpy(order[starts[server] : starts[server + 1]])
            attached = Attachments()
            rows = pb.Rows(
                table=table,
                ids=attached.add(state.ids[part]),
                values=attached.add(state.values[part]),
                slots=[attached.add(block[part], name=name) for name, block in state.slots.items()],
                step=state.step,
            )
            described = pb.Rule(kind=rule.kind, settings=rule.settings) if rule is not None else None
            request = pb.PushTableRequest(rows=rows, rule=described, replaces=replaces)
            requests[server] = (pb.Envelope(push_table=request), attached)
        self._servers.ask_some(requests)

    @following_moves
    def checkpoint(self, folder: Path | str) -> None:
        """Save all servers at one point: a push is in the checkpoint of all of them, or of none.

        The servers write to `folder` themselves, so it must be a folder that all of them share.
        """
        save_all(self._servers, Path(folder))

    @following_moves
    def restore(self, folder: Path | str) -> None:
        """Give the servers the state of a checkpoint, which any number of servers may have written."""
        restore_all(self._servers, Path(folder))
        self.forget_versions()

    @following_moves
    def move(self, addresses: Sequence[str], *, folder: Path | str) -> None:
        """Have the parameters on other servers, of any number, while they are used.

        The new servers run already, and what they have is replaced, by a checkpoint in `folder`, which all servers
        share. Pushes wait meanwhile. Then this client and all others go on with the new servers by themselves; the old
        ones tell where to go, and may be stopped once nobody asks them any more.
        """
        target = self._servers.elsewhere(addresses)
        try:
            move_all(self._servers, target, folder=Path(folder))
        finally:
            target.close()
        self.follow(addresses)

    def follow(self, addresses: Sequence[str]) -> None:
        """Go on with other servers, which have what these had."""
        self._servers.close()
        self._servers = self._servers.elsewhere(addresses)
        self.versions = [min(self.versions)] * self.num_servers

    @following_moves
    def progress(self, *, prefix: str = "", forget_prefix: str = "") -> dict[str, int]:
        """The last push of every source whose name begins with `prefix` that all servers have applied."""
        request = pb.ProgressRequest(prefix=prefix, forget_prefix=forget_prefix)
        answers = self._servers.ask_all(pb.Envelope(progress=request))
        found = [dict(answer.made.sequences) for answer, _ in answers]
        sources = set.intersection(*(set(one) for one in found))
        return {source: min(one[source] for one in found) for source in sources}

    def stats(self) -> list[dict[str, Any]]:
        """Rows, bytes, versions, staleness and latencies of every server."""
        answers = self._servers.ask_all(pb.Envelope(stats=pb.StatsRequest()))
        addresses = self._servers.addresses
        documents = [json.loads(answer.figures.document) for answer, _ in answers]
        return [{"address": address, **document} for address, document in zip(addresses, documents, strict=True)]


def _row_block(ids: Any, gradients: torch.Tensor) -> tuple[Ids, torch.Tensor]:
    """The ids of a push and the gradients of their rows, as they are sent."""
    known = _ids(ids)
    if gradients.dim() != 2 or len(gradients) != len(known):
        raise InputError(f"{len(known)} ids need as many rows of gradients, got shape {tuple(gradients.shape)}.")
    return known, gradients.detach().cpu().float().contiguous()


def _ids(ids: Any) -> Ids:
    array = ids.detach().cpu().numpy() if isinstance(ids, torch.Tensor) else np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"ids must be a list of whole numbers, got {array.dtype} of shape {array.shape}.")
    return np.ascontiguousarray(array, np.int64)
