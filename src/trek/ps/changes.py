"""Changes: what requests do to the state of a server, as transactions.

`prepare` checks a whole request and changes nothing, so that a request that is refused has done nothing. What it
returns can be applied without a failure; the server writes the request to its journal in between. A replay of the
journal goes the same way, so a request that was written can be applied again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from trek.errors import InputError
from trek.ps.addresses import parse_address
from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Bytes, array_of, tensor_of
from trek.ps.rules import Rule
from trek.ps.server_state import Mode, Push, RowGradients, ServerState
from trek.ps.table import Table
from trek.ps.table_spec import TableSpec


def _nothing() -> None:
    """Done."""


@dataclass(frozen=True)
class Change:
    """A request that was checked."""

    apply: Callable[[], None]
    """Change the state, which must be as it was when the request was checked."""
    discard: Callable[[], None] = _nothing
    """Give back what was opened for it, instead of applying it."""


def prepare(state: ServerState, request: pb.Envelope, body: Bytes) -> Change:
    """The change that a request makes; InputError if it is not valid. Changes nothing."""
    do = request.WhichOneof("message") or ""
    return _PREPARERS[do](state, getattr(request, do), body)


def push_of(request: pb.PushGradientRequest, body: Bytes) -> Push:
    """The push of a request. Its gradients lie in `body`."""
    if request.sequence < 1:
        raise InputError(f"a push must have a sequence of at least 1, got {request.sequence}.")
    rules = [Rule(one.kind, one.settings) for one in request.rules]
    rows = []
    for one in request.rows:
        if one.values.dtype != pb.FLOAT32 or one.ids.dtype != pb.INT64:
            raise InputError(f"gradients of rows of {one.table!r} must be float32 with int64 ids.")
        ids, values = array_of(one.ids, body), array_of(one.values, body)
        rows.append(RowGradients(one.table, ids, values, _rule_at(rules, one.rule)))
    return Push(
        source=request.source,
        sequence=request.sequence,
        version=request.version,
        dense=[((one.name, one.offset), tensor_of(one, body), _rule_at(rules, one.rule)) for one in request.dense],
        rows=rows,
        digest=request.digest,
    )


def _push_gradient(state: ServerState, request: pb.PushGradientRequest, body: Bytes) -> Change:
    push = push_of(request, body)
    return Change(lambda: state.apply(push)) if state.judge(push) == "apply" else Change(_nothing)


def _push_model(state: ServerState, model: pb.Model, body: Bytes) -> Change:
    mode = Mode(model.mode.grads_to_wait or 1, model.mode.max_staleness, model.mode.scale_lr_by_staleness)
    dense = {(one.name, one.offset): tensor_of(one, body) for one in model.dense}
    tables = _add_tables(state, model.tables, body)

    def apply() -> None:
        state.initialize(dense, mode=mode)
        tables.apply()

    return Change(apply, tables.discard)


def _add_tables(state: ServerState, infos: pb.TableInfos, body: Bytes) -> Change:
    del body
    opened = state.open_tables(TableSpec.of(**_object(spec)) for spec in infos.specs)
    return Change(lambda: state.tables.update(opened), lambda: _close(*opened.values()))


def _put_model(state: ServerState, request: pb.PutModelRequest, body: Bytes) -> Change:
    slots: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
    for one in request.state:
        slots.setdefault((one.name, one.offset), {})[one.slot] = tensor_of(one, body).clone()
    rules = [Rule(one.kind, one.settings) for one in request.rules]
    replacements = state.replacements(
        {
            key: (tensor_of(one, body), slots.get(key, {}), _rule_at(rules, one.rule) if rules else None)
            for one in request.dense
            for key in [(one.name, one.offset)]
        }
    )
    return Change(lambda: state.dense.update(replacements))


def _push_table(state: ServerState, request: pb.PushTableRequest, body: Bytes) -> Change:
    rows = request.rows
    table = state.table(rows.table)
    ids, values = array_of(rows.ids, body), tensor_of(rows.values, body)
    slots = {one.name: tensor_of(one, body) for one in rows.slots}
    rule = Rule(request.rule.kind, request.rule.settings) if request.rule.kind else None
    table.check(ids, values.float().numpy())
    target = state.open_table(table.spec) if request.replaces else table
    discard = target.close if request.replaces else _nothing
    try:
        if rule is not None:
            state.check_rows_rule(target, rule)
        target.check_slots(len(ids), slots, rule=rule)
    except BaseException:
        discard()
        raise

    def apply() -> None:
        if request.replaces:
            state.replace_table(target)
        target.put(ids, values, slots=slots, rule=rule, step=rows.step, version=state.next_version)

    return Change(apply, discard)


def _flush(state: ServerState, request: pb.FlushRequest, body: Bytes) -> Change:
    del request, body
    return Change(state.flush)


def _move(state: ServerState, request: pb.MoveRequest, body: Bytes) -> Change:
    del body
    for address in request.addresses:
        parse_address(address)

    def apply() -> None:
        state.moved_to = tuple(request.addresses)

    return Change(apply)


def _forget(state: ServerState, request: pb.ProgressRequest, body: Bytes) -> Change:
    del body
    return Change(lambda: state.ledger.forget(request.forget_prefix))


_PREPARERS: dict[str, Callable[[ServerState, Any, Bytes], Change]] = {
    "push_gradient": _push_gradient,
    "push_model": _push_model,
    "push_embedding_table_infos": _add_tables,
    "put_model": _put_model,
    "push_table": _push_table,
    "flush": _flush,
    "move": _move,
    "progress": _forget,
}


def _close(*tables: Table) -> None:
    for table in tables:
        table.close()


def _rule_at(rules: list[Rule], index: int) -> Rule:
    if not 0 <= index < len(rules):
        raise InputError(f"the request names rule {index}, but has {len(rules)}.")
    return rules[index]


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"a table's description must be JSON, got {text!r}.") from error
    if not isinstance(found, dict):
        raise InputError(f"a table's description must be a JSON object, got {text!r}.")
    return found
