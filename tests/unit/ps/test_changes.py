"""Requests are transactions: one that is refused changes nothing, and a journal gives the state that a server had."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trek.errors import CheckpointError, OutsideError
from trek.ps.journal import Journal
from trek.ps.journal_file import JournalFile
from trek.ps.protocol import messages as pb
from trek.ps.protocol.frames import NO_BODY
from trek.ps.protocol.tensors import Attachments, Bytes
from trek.ps.server_state import Push, ServerState
from trek.ps.service import Service
from trek.ps.table import Table

ADAM = {"lr": 0.1, "betas": [0.9, 0.99]}
RULES = [
    pb.Rule(kind="SGD", settings=json.dumps({"lr": 0.5})),
    pb.Rule(kind="SGD", settings=json.dumps({"lr": 0.5, "momentum": 0.9})),
    pb.Rule(kind="Adam", settings=json.dumps(ADAM)),
]
POISON = [
    pb.Rule(kind="Adam", settings=json.dumps(one))
    for one in ({**ADAM, "betas": [0.9, 0.99, 0.5]}, {**ADAM, "betas": [0.9]}, {**ADAM, "lr": "x"}, [], 3)
] + [
    pb.Rule(kind="Adam", settings=json.dumps({**ADAM, "capturable": True})),
    pb.Rule(kind="Adam", settings=json.dumps({**ADAM, "lr": 10**400})),
    pb.Rule(kind="Adam", settings="{"),
    pb.Rule(kind="SparseAdam", settings='{"lr": 0.1}'),
    pb.Rule(kind="Nothing", settings="{}"),
]
Request = tuple[pb.Envelope, Bytes]


class FullDisk(Journal):
    """A journal that cannot be written while `is_full`."""

    is_full = False

    def append(self, envelope: pb.Envelope, body: Bytes) -> None:
        if self.is_full:
            raise OutsideError("the disk is full")
        super().append(envelope, body)

    def is_long(self, state_bytes: int) -> bool:
        del state_bytes
        return super().is_long(0)


def body_of(attached: Attachments) -> Bytes:
    return np.frombuffer(bytearray(attached.joined()), np.uint8)


def ids_of(attached: Attachments, values: list[int]) -> pb.Tensor:
    return attached.add(torch.tensor(values, dtype=torch.int64))


def push_model(draw: Callable[..., Any]) -> Request:
    attached = Attachments()
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=2))
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.int64]))
    dense = [attached.add(torch.ones(2, dtype=dtype), name=name) for name in names]
    dims = draw(st.lists(st.tuples(st.sampled_from(["t", "u", "v"]), st.sampled_from([2, 2, 2, 3, 0])), max_size=3))
    specs = [
        json.dumps({"name": name, "dim": dim, "max_rows": 4, "max_age": 5, "admit_after": 1 + (name == "v")})
        for name, dim in dims
    ]
    mode = pb.Mode(grads_to_wait=draw(st.sampled_from([1, 2])), max_staleness=-1)
    return pb.Envelope(push_model=pb.Model(dense=dense, mode=mode, tables=pb.TableInfos(specs=specs))), body_of(
        attached
    )


def push_gradient(draw: Callable[..., Any]) -> Request:
    attached = Attachments()
    request = pb.PushGradientRequest(source=draw(st.sampled_from("xy")), sequence=draw(st.integers(0, 9)))
    request.rules.extend(draw(st.lists(st.sampled_from([*RULES, *RULES, *POISON]), min_size=1, max_size=2)))
    rules = st.integers(0, len(request.rules) - draw(st.sampled_from([0, 1, 1, 1])))
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=2)):
        size = draw(st.sampled_from([2, 2, 2, 3]))
        request.dense.append(attached.add(torch.full((size,), 0.5), name=name, rule=draw(rules)))
    for table in draw(st.lists(st.sampled_from(["t", "u", "v"]), max_size=2)):
        ids = draw(st.lists(st.integers(0, 9), max_size=4))
        values = attached.add(torch.ones(len(ids), draw(st.sampled_from([2, 2, 2, 3]))))
        request.rows.append(pb.Rows(table=table, ids=ids_of(attached, ids), values=values, rule=draw(rules)))
    return pb.Envelope(push_gradient=request), body_of(attached)


def put_model(draw: Callable[..., Any]) -> Request:
    attached = Attachments()
    request = pb.PutModelRequest(rules=draw(st.lists(st.sampled_from([*RULES, *RULES, *POISON]), max_size=1)))
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=2)):
        dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.float64]))
        request.dense.append(attached.add(torch.zeros(2, dtype=dtype), name=name))
        slots = draw(st.sampled_from([[], ["step", "exp_avg", "exp_avg_sq"], ["step"], ["momentum_buffer"], ["zz"]]))
        for slot in slots:
            value = torch.tensor(3.0) if slot == "step" else torch.ones(draw(st.sampled_from([2, 2, 3])))
            request.state.append(attached.add(value, name=name, slot=slot))
    return pb.Envelope(put_model=request), body_of(attached)


def push_table(draw: Callable[..., Any]) -> Request:
    attached = Attachments()
    ids = draw(st.lists(st.integers(0, 9), max_size=4))
    request = pb.PushTableRequest(replaces=draw(st.booleans()))
    request.rows.table = draw(st.sampled_from(["t", "u", "v"]))
    request.rows.step = draw(st.integers(0, 5))
    request.rows.ids.CopyFrom(ids_of(attached, ids))
    request.rows.values.CopyFrom(attached.add(torch.ones(len(ids), draw(st.sampled_from([2, 2, 3])))))
    for slot in draw(st.sampled_from([[], [], ["momentum_buffer"], ["exp_avg", "exp_avg_sq"], ["zz"]])):
        block = torch.ones(len(ids), 2, dtype=draw(st.sampled_from([torch.float32, torch.float32, torch.float64])))
        request.rows.slots.append(attached.add(block, name=slot))
    if draw(st.booleans()):
        request.rule.CopyFrom(draw(st.sampled_from([*RULES, *POISON])))
    return pb.Envelope(push_table=request), body_of(attached)


def other(draw: Callable[..., Any]) -> Request:
    return draw(
        st.sampled_from(
            [
                pb.Envelope(flush=pb.FlushRequest()),
                pb.Envelope(progress=pb.ProgressRequest(forget_prefix="x")),
                pb.Envelope(move=pb.MoveRequest(addresses=["nowhere"])),
                pb.Envelope(push_embedding_table_infos=pb.TableInfos(specs=["{"])),
                pb.Envelope(
                    push_embedding_table_infos=pb.TableInfos(specs=['{"name": "u", "dim": 2, "memory_bytes": 64}'])
                ),
                pb.Envelope(restore=pb.RestoreRequest(path="/nothing", num_servers=1)),
                pb.Envelope(),
            ]
        )
    ), NO_BODY


@st.composite
def requests(draw: Callable[..., Any]) -> Request:
    make = draw(
        st.sampled_from([push_model, push_gradient, push_gradient, push_gradient, put_model, push_table, other])
    )
    return make(draw)


def contents(state: ServerState) -> dict[str, Any]:
    """Everything that a state has, as values that can be compared, without what depends on when it was read."""
    tables = {name: (table.spec, table.rule, _table(table)) for name, table in state.tables.items()}
    dense = {key: (_plain(one.value), one.rule, _plain(one.state)) for key, one in state.dense.items()}
    whole = (state.version, state.mode, state.is_initialized, dict(state.ledger._last), state.moved_to)
    return {"tables": tables, "dense": dense, "whole": whole, "pending": [_push(one) for one in state.pending]}


def _table(table: Table) -> Any:
    state = table.state()
    columns = [state.ids, state.touched, state.values, *state.slots.values()]
    rows = sorted(zip(*map(_plain, columns), strict=True))
    waiting = sorted(zip(_plain(state.waiting_ids), _plain(state.waiting_counts), strict=True))
    return rows, waiting, list(state.slots), state.step, state.aged_at


def _push(push: Push) -> Any:
    dense = [(key, _plain(gradient), rule) for key, gradient, rule in push.dense]
    rows = [(one.table, _plain(one.ids), _plain(one.values), one.rule) for one in push.rows]
    return push.source, push.sequence, push.version, dense, rows


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, torch.Tensor | np.ndarray) else value


def replayed(folder: Path) -> dict[str, Any]:
    """The state of a server that is started with a journal."""
    with closing(Service(journal=Journal(folder))) as service:
        return contents(service._state)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_refusal_changes_nothing_and_a_replay_gives_the_state(data: Any, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("server") / "journal"
    given_requests = data.draw(st.lists(st.tuples(requests(), st.integers(0, 9)), min_size=5, max_size=25))
    journal = FullDisk(folder, least_bytes=data.draw(st.sampled_from([300, 1 << 30])))
    with closing(Service(journal=journal)) as service:
        for (request, body), kind in given_requests:
            journal.is_full = kind == 9
            before = contents(service._state)
            answer, _ = service.answer(request, body)
            if answer.WhichOneof("message") == "failure":
                assert "failed" not in answer.failure.message
                assert contents(service._state) == before, answer.failure.message
        found = contents(service._state)
    assert replayed(folder) == found


def model(*names: str, dims: tuple[int, ...] = ()) -> Request:
    attached = Attachments()
    specs = [json.dumps({"name": f"t{number}", "dim": dim}) for number, dim in enumerate(dims)]
    dense = [attached.add(torch.zeros(2), name=name) for name in names]
    tables, mode = pb.TableInfos(specs=specs), pb.Mode(max_staleness=-1)
    return pb.Envelope(push_model=pb.Model(dense=dense, tables=tables, mode=mode)), body_of(attached)


def push(rule: pb.Rule, *, sequence: int = 1) -> Request:
    attached = Attachments()
    dense = [attached.add(torch.ones(2), name="w")]
    request = pb.PushGradientRequest(source="x", sequence=sequence, dense=dense, rules=[rule])
    return pb.Envelope(push_gradient=request), body_of(attached)


def test_a_model_is_taken_as_a_whole_or_not_at_all() -> None:
    service = Service()
    assert service.answer(*model("w", dims=(2, 2)))[0].HasField("pushed_model")
    refused, _ = service.answer(*model("other", dims=(2, 3)))
    assert "other settings" in refused.failure.message
    assert list(service._state.dense) == [("w", 0)]
    service.close()


@pytest.mark.parametrize("rule", POISON, ids=lambda one: f"{one.kind}{one.settings[:40]}")
def test_settings_that_only_a_step_refuses_are_refused_before_they_are_written(rule: pb.Rule, tmp_path: Path) -> None:
    with closing(Service(journal=Journal(tmp_path / "journal"))) as service:
        service.answer(*model("w"))
        refused, _ = service.answer(*push(rule))
        assert refused.failure.is_input, refused
        assert service.answer(*push(RULES[0]))[0].pushed.version == 1
        found = contents(service._state)
    assert replayed(tmp_path / "journal") == found


def test_a_refused_push_does_not_fix_the_optimizer() -> None:
    service = Service()
    service.answer(*model("w", dims=(2,)))
    request, body = push(RULES[2])
    request.push_gradient.rows.append(pb.Rows(table="typo", ids=pb.Tensor(dtype=pb.INT64, shape=[0])))
    request.push_gradient.rows[0].values.shape.extend([0, 2])
    assert "no table 'typo'" in service.answer(request, body)[0].failure.message
    assert service.answer(*push(RULES[0]))[0].pushed.accepted
    service.close()


def test_a_change_that_fails_is_not_in_the_journal_and_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(journal=Journal(tmp_path / "journal"))
    service.answer(*model("w"))
    service.answer(*push(RULES[0]))
    before = contents(service._state)

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(ServerState, "_update", fail)
        assert "MemoryError" in service.answer(*push(RULES[0], sequence=2))[0].failure.message
    assert "Start the server again" in service.answer(*push(RULES[0], sequence=3))[0].failure.message
    service.close()
    assert replayed(tmp_path / "journal") == before


def test_a_journal_with_a_request_that_cannot_be_applied_is_reported(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    file = JournalFile(tmp_path / "journal" / "journal-0", number=0)
    for request in (model("w"), push(RULES[0]), push(POISON[0], sequence=2), push(RULES[0], sequence=3)):
        file.append(*request)
        if request[0].push_gradient.sequence == 1:
            end = file.num_bytes
    file.close()
    with pytest.raises(CheckpointError, match=rf"request 3 .*number 2 of 'x'.*betas.*--size={end} .*journal-0$"):
        Service(journal=Journal(tmp_path / "journal"))
    with (tmp_path / "journal" / "journal-0").open("r+b") as left:
        left.truncate(end)
    service = Service(journal=Journal(tmp_path / "journal"))
    assert service.num_replayed == 2
    service.close()
