"""A client and real servers in this process: placement, versions, idempotence, modes, journal, checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trek.errors import ConfigError, InputError, OutsideError, PortInUse, StorageError
from trek.ps import Client, Initial, Rule, TableSpec, service
from trek.ps.moves import save_all
from trek.ps.placement import SPLIT_ELEMENTS, parts_of
from trek.ps.protocol import messages as pb
from trek.ps.server import listen
from trek.ps.server_state import Mode
from trek.ps.snapshot import write_snapshot
from trek.ps.table_rows import TableRows
from trek.wire.connections import JobServer

SGD = Rule.named("SGD", lr=0.5)
USER = TableSpec.of(name="user", dim=4)


Start = Callable[..., tuple[Client, Any]]
"""Begins servers and a client of them: see `conftest.Servers`."""


def push(client: Client, seed: int, **named: Any) -> Any:
    rng = np.random.default_rng(seed)
    ids = rng.integers(-20, 20, 12)
    gradients = torch.from_numpy(rng.standard_normal((12, 4)).astype(np.float32))
    dense = torch.from_numpy(rng.standard_normal(6).astype(np.float32)).reshape(2, 3)
    return client.push_gradients({"weight": dense}, rows={"user": (ids, gradients)}, rule=SGD, **named)


def begin_model(client: Client, **named: Any) -> None:
    client.push_model({"weight": torch.ones(2, 3)}, tables=[USER], **named)


def contents(client: Client) -> tuple[torch.Tensor, torch.Tensor]:
    return client.pull_dense()["weight"].clone(), client.pull_rows("user", range(-20, 20)).clone()


def same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_result_does_not_depend_on_the_number_of_servers(start: Start) -> None:
    found = []
    for count in (1, 3):
        client, _ = start(count, name=f"of-{count}")
        begin_model(client)
        for seed in range(5):
            push(client, seed)
        found.append(contents(client))
    assert same(*found)


def test_large_parameters_are_split_and_come_back_whole(start: Start) -> None:
    client, _ = start(3)
    value = torch.randn(3 * SPLIT_ELEMENTS // 2 + 7, generator=torch.Generator().manual_seed(0)).reshape(-1, 1)
    client.push_model({"large": value, "small": torch.ones(3)})
    assert [one["dense"]["parameters"] >= 1 for one in client.stats()] == [True] * 3
    adam = Rule.named("AdamW", lr=0.1)
    own = torch.nn.Parameter(value.clone())
    optimizer = torch.optim.AdamW([own], lr=0.1)
    for _ in range(2):
        own.grad = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
        client.push_gradients({"large": own.grad}, rule=adam)
        optimizer.step()
    assert torch.equal(client.pull_dense()["large"], own)
    into = {"large": torch.zeros_like(value), "small": torch.zeros(3)}
    client.forget_versions()
    assert client.pull_dense(into=into) == {"large", "small"}
    assert torch.equal(into["large"], own)


def test_parameters_may_lie_in_any_order(start: Start) -> None:
    client, _ = start(2)
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last)]
    values += [torch.randn(300, SPLIT_ELEMENTS // 200, generator=generator).t()]
    given = {f"p{number}": value for number, value in enumerate(values)}
    client.push_model(given)
    into = {name: torch.zeros_like(value) for name, value in given.items()}
    client.pull_dense(into=into)
    assert all(torch.equal(into[name], value) for name, value in given.items())
    client.push_gradients(given, rule=Rule.named("SGD", lr=1.0))
    client.pull_dense(into=into)
    assert not any(value.any() for value in into.values())


def test_parts_cover_a_parameter_once() -> None:
    for size in (1, SPLIT_ELEMENTS, SPLIT_ELEMENTS + 1, 10 * SPLIT_ELEMENTS + 3):
        for servers in (1, 2, 5):
            parts = parts_of("name", size, num_servers=servers)
            assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
            assert parts[-1].stop == size
            assert len({part.server for part in parts}) == len(parts)


def test_pulls_skip_what_did_not_change(start: Start) -> None:
    client, _ = start()
    client.push_model({"a": torch.ones(2), "b": torch.ones(2)})
    into = {"a": torch.zeros(2), "b": torch.zeros(2)}
    assert client.pull_dense(into=into) == {"a", "b"}
    client.push_gradients({"b": torch.ones(2)}, rule=SGD)
    assert client.pull_dense(into=into) == {"b"}
    assert client.pull_dense(into=into) == set()
    assert into["b"].tolist() == [0.5, 0.5]


def test_what_is_put_between_two_pushes_reaches_those_who_have_the_version(start: Start, tmp_path: Path) -> None:
    """It had the version of the push before, so clients that knew this version went on with what was there."""
    client, servers = start(2)
    begin_model(client)
    push(client, 0)
    client.checkpoint(tmp_path / "saved")
    other, version = Client(servers.addresses), client.stats()[0]["version"]
    other.pull_dense()
    client.put_dense({"weight": torch.full((2, 3), 7.0)}, state={}, rules={})
    assert other.pull_dense()["weight"].unique().tolist() == [7]
    client.push_model({"later": torch.ones(1)})
    assert other.pull_dense()["later"].tolist() == [1]
    rows = client.export_state("user")
    client.put_rows("user", rows)
    assert torch.equal(client.export_rows("user", since=version)[0], rows.ids)
    push(client, 1)
    pushed = other.pull_dense()["weight"].clone()
    client.restore(tmp_path / "saved")
    assert torch.equal(other.pull_dense()["weight"], client.pull_dense()["weight"])
    assert not torch.equal(other.pull_dense()["weight"], pushed)
    other.close()


def test_only_the_first_model_counts(start: Start) -> None:
    client, servers = start()
    other = Client(servers.addresses)
    assert client.push_model({"a": torch.ones(2)})
    assert not other.push_model({"a": torch.zeros(2)})
    assert other.pull_dense()["a"].tolist() == [1, 1]
    other.close()


def test_a_push_is_applied_once_whoever_repeats_it(start: Start) -> None:
    client, servers = start(2)
    begin_model(client)
    push(client, 1, source="shard 7", sequence=1)
    before = contents(client)
    other = Client(servers.addresses)
    assert push(other, 1, source="shard 7", sequence=1).accepted
    assert same(contents(client), before)
    assert other.progress(prefix="shard") == {"shard 7": 1}
    push(other, 2, source="shard 7", sequence=2)
    assert not same(contents(client), before)
    assert other.progress(forget_prefix="shard") == {}
    other.close()


def test_a_push_that_one_of_two_servers_refuses_uses_up_its_number(start: Start) -> None:
    client, _ = start(2)
    names = [f"p{number}" for number in range(8)]
    client.push_model({name: torch.zeros(1) for name in names})
    ones = {name: torch.ones(1) for name in names}
    for _ in range(2):  # the second time, the server that took it the first time does not take it again
        with pytest.raises(InputError, match="'unknown'"):
            client.push_gradients({**ones, "unknown": torch.ones(1)}, rule=SGD)
    found = client.pull_dense()
    assert sorted({value.item() for value in found.values()}) == [-0.5, 0]
    pushed = client.push_gradients({name: torch.full((1,), 10.0) for name in names}, rule=SGD)
    assert (pushed.accepted, pushed.is_repeated) == (True, False)
    assert all(value == found[name] - 5 for name, value in client.pull_dense().items())


def test_a_number_belongs_to_the_contents_of_its_push(start: Start) -> None:
    client, _ = start(2)
    begin_model(client)
    assert not push(client, 1, sequence=1).is_repeated
    before = contents(client)
    assert push(client, 1, sequence=1).is_repeated
    with pytest.raises(InputError, match="with other contents, so this one was not"):
        push(client, 2, sequence=1)
    assert push(client, 2, sequence=1, may_differ=True).is_repeated
    assert same(contents(client), before)


def test_a_client_goes_on_after_the_last_push_of_its_source(start: Start) -> None:
    client, servers = start(2)
    client.push_model({"w": torch.zeros(1)})
    for count in (1, 2, 3):
        with Client(servers.addresses, source="worker") as one:
            pushed = [one.push_gradients({"w": torch.ones(1)}, rule=SGD) for _ in range(2)]
        assert not any(result.is_repeated for result in pushed)
        assert client.pull_dense()["w"].item() == -count


def test_a_synchronous_step_is_the_mean_of_its_pushes(start: Start) -> None:
    client, servers = start(2)
    other = Client(servers.addresses)
    begin_model(client, mode=Mode(grads_to_wait=2, max_staleness=0))
    weight, ids = torch.ones(2, 3), [3, -4]
    rows = client.pull_rows("user", ids)
    client.pull_dense()
    other.pull_dense()
    first = client.push_gradients({"weight": weight}, rows={"user": ([3], torch.ones(1, 4))}, rule=SGD)
    assert first.accepted
    assert client.pull_dense()["weight"].tolist() == torch.ones(2, 3).tolist()
    both = {"user": (ids, torch.ones(2, 4))}
    other.push_gradients({"weight": 3 * weight}, rows=both, rule=SGD)
    client.pull_dense(min_version=1)
    assert torch.equal(client.pull_dense()["weight"], torch.zeros(2, 3))
    expected = rows - 0.5 * torch.tensor([[1.0], [0.5]])
    assert torch.equal(client.pull_rows("user", ids), expected)
    stale = other.push_gradients({"weight": weight}, rule=SGD)
    assert not stale.accepted, "its gradients are of version 0"
    other.pull_dense()
    assert other.push_gradients({"weight": weight}, rule=SGD).accepted
    other.close()


def test_bounded_staleness_rejects_what_is_too_old(start: Start) -> None:
    client, servers = start()
    begin_model(client, mode=Mode(max_staleness=2))
    client.pull_dense()
    fast = Client(servers.addresses)
    for seed in range(3):
        fast.pull_dense()
        push(fast, seed)
    assert not push(client, 9).accepted
    client.pull_dense()
    assert push(client, 9).accepted
    [figures] = client.stats()
    assert (figures["rejected"], figures["version"]) == (1, 4)
    fast.close()


def test_the_learning_rate_is_divided_by_staleness(start: Start) -> None:
    client, servers = start()
    begin_model(client, mode=Mode(scale_lr_by_staleness=True))
    client.pull_dense()
    fast = Client(servers.addresses)
    for _ in range(4):
        fast.pull_dense()
        fast.push_gradients({"weight": torch.zeros(2, 3)}, rule=SGD)
    client.push_gradients({"weight": torch.ones(2, 3)}, rule=SGD)
    assert torch.equal(client.pull_dense()["weight"], torch.full((2, 3), 1 - 0.5 / 4))
    assert client.stats()[0]["staleness"] == {"0": 4, "4": 1}
    fast.close()


@pytest.mark.parametrize("least_bytes", [1 << 30, 500])
def test_a_server_comes_back_with_what_it_had_acknowledged(start: Start, least_bytes: int) -> None:
    client, servers = start(2, least_bytes=least_bytes)
    begin_model(client, mode=Mode(grads_to_wait=2))
    for seed in range(7):
        push(client, seed)
    before = contents(client)
    for number in (0, 1):
        servers.stop(number)
        servers.start(number)
    assert same(contents(client), before)
    push(client, 7)
    assert client.stats()[0]["version"] == 4, "the seventh push was kept until its step was complete"


def test_a_server_comes_back_with_parameters_that_were_put(start: Start) -> None:
    client, servers = start()
    begin_model(client)
    client.put_dense({"weight": torch.zeros(2, 3)}, state={}, rules={"weight": SGD})
    servers.stop(0)
    servers.start(0)
    assert not client.pull_dense()["weight"].any()


def test_a_torn_journal_loses_only_what_nobody_was_told(start: Start, tmp_path: Path) -> None:
    client, servers = start()
    begin_model(client)
    push(client, 1)
    before = contents(client)
    servers.stop(0)
    [path] = (tmp_path / "servers" / "0" / "journal").glob("journal-*")
    contents_of_file = path.read_bytes()
    end = len(contents_of_file.rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(end + -end % 8)
        file.write(contents_of_file[:50])
    servers.start(0)
    assert same(contents(client), before)
    push(client, 2)
    before = contents(client)
    servers.stop(0)
    servers.start(0)
    assert same(contents(client), before)


def test_a_client_waits_for_a_server_that_is_started_again(start: Start) -> None:
    client, servers = start()
    begin_model(client)
    servers.stop(0)
    servers.start(0)
    assert push(client, 1).accepted


def test_a_server_that_does_not_read_keeps_no_request_from_the_others(start: Start) -> None:
    table = TableSpec.of(name="wide", dim=1024)
    client, servers = start()
    client.push_model(tables=[table])
    ended = threading.Event()
    stuck = JobServer(
        listen(("127.0.0.1", 0), secret=""), secret="", serve=lambda _: ended.wait() and None, name="stuck"
    )
    outcome: list[Exception] = []

    def push_to_both() -> None:
        both = [f"127.0.0.1:{stuck.port}", *servers.addresses]
        rows = {"wide": (range(4000), torch.ones(4000, 1024))}  # far more than a socket holds
        with Client(both, patience_s=0.1) as other:
            try:
                other.push_gradients(rows=rows, rule=SGD)
            except OutsideError as error:
                outcome.append(error)

    pushing = threading.Thread(target=push_to_both)
    pushing.start()
    try:
        while client.stats()[0]["version"] == 0:
            pushing.join(0.01)
            assert pushing.is_alive()
    finally:
        ended.set()
        stuck.close()
        pushing.join()
    assert len(outcome) == 1


def test_a_checkpoint_is_restored_by_any_number_of_servers(start: Start, tmp_path: Path) -> None:
    found = []
    for count in (3, 1, 2):
        client, _ = start(count, name=f"of-{count}")
        if count == 3:
            begin_model(client)
            for seed in range(4):
                push(client, seed)
            client.checkpoint(tmp_path / "saved")
        else:
            client.restore(tmp_path / "saved")
        push(client, 4, source="x", sequence=1)
        found.append(contents(client))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_a_checkpoint_that_fails_on_one_server_leaves_the_one_before(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other servers had replaced their parts of it, and what was restored from both was of no point in time."""

    def full(*given: Any, server: int, **named: Any) -> None:
        if server == 1:
            raise StorageError("no space left")
        write_snapshot(*given, server=server, **named)

    client, _ = start(2)
    begin_model(client)
    client.checkpoint(tmp_path / "saved")
    before, files = contents(client), sorted((tmp_path / "saved").iterdir())
    push(client, 0)
    monkeypatch.setattr(service, "write_snapshot", full)
    with pytest.raises(OutsideError, match="no space left"):
        client.checkpoint(tmp_path / "saved")
    assert sorted((tmp_path / "saved").iterdir()) == files
    client.restore(tmp_path / "saved")
    assert same(contents(client), before)
    next((tmp_path / "saved").glob("*1.json")).unlink()
    with pytest.raises(OutsideError, match="incomplete: it has the state of 1 of 2"):
        client.restore(tmp_path / "saved")


def test_a_checkpoint_is_a_consistent_cut(start: Start, tmp_path: Path) -> None:
    client, servers = start(3)
    ids = list(range(12))  # on all three servers
    client.push_model(tables=[TableSpec.of(name="user", dim=4, initial=Initial(kind="zeros"))])

    def push_all() -> None:
        with Client(servers.addresses) as other:
            for _ in range(60):
                other.push_gradients(rows={"user": (ids, torch.ones(12, 4))}, rule=SGD)

    pushing = threading.Thread(target=push_all)
    pushing.start()
    for number in range(5):
        client.checkpoint(tmp_path / str(number))
    pushing.join()
    assert (client.pull_rows("user", ids) == -30).all()
    single, _ = start(1, name="single")
    for number in range(5):
        single.restore(tmp_path / str(number))
        assert len(single.pull_rows("user", ids).unique()) == 1


def test_servers_are_added_and_removed_while_they_are_used(start: Start, tmp_path: Path) -> None:
    ids, num_pushes = list(range(12)), 80
    table = TableSpec.of(name="user", dim=4, initial=Initial(kind="zeros"))
    client, servers = start(1)
    client.push_model({"weight": torch.ones(2, 3)}, tables=[table])

    def push_all() -> None:
        with Client(servers.addresses) as other:
            for _ in range(num_pushes):
                rows = {"user": (ids, torch.ones(12, 4))}
                assert other.push_gradients({"weight": torch.ones(2, 3)}, rows=rows, rule=SGD).accepted

    pushing = [threading.Thread(target=push_all) for _ in range(2)]
    for thread in pushing:
        thread.start()
    for number, count in enumerate((3, 2)):
        _, others = start(count, name=f"moved-{number}")
        client.move(others.addresses, folder=tmp_path / f"checkpoint-{number}")
        assert client.num_servers == count
        servers.stop(0)
        servers.start(0)  # also after a restart, it knows where to go
        client.pull_rows("user", ids)
    for thread in pushing:
        thread.join()
    assert (client.pull_rows("user", ids) == -0.5 * 2 * num_pushes).all()
    assert (client.pull_dense()["weight"] == 1 - 0.5 * 2 * num_pushes).all()
    assert [one["version"] for one in client.stats()] == [2 * num_pushes] * 2


def test_a_move_that_fails_changes_nothing(start: Start, tmp_path: Path) -> None:
    client, _ = start(2)
    begin_model(client)
    other, others = start(1, name="other")
    others.stop(0)
    client._servers.patience_s = 0.1
    with pytest.raises(OutsideError, match="did not answer"):
        client.move(others.addresses, folder=tmp_path / "moving")
    assert push(client, 1).accepted
    assert client.num_servers == 2
    other.close()


def test_a_server_that_took_pushes_again_does_not_move(start: Start, tmp_path: Path) -> None:
    client, _ = start(2)
    begin_model(client)
    held = client._servers
    save_all(held, tmp_path / "saved", hold_ms=10, stays_held=True)
    push(client, 1)  # waits until the hold has ended
    late = pb.MoveRequest(addresses=["127.0.0.1:1"], must_be_held=True)
    with pytest.raises(OutsideError, match="move it again"):
        held.ask_all(pb.Envelope(move=late))
    assert push(client, 2).accepted


def test_a_restored_server_survives_a_kill(start: Start, tmp_path: Path) -> None:
    client, servers = start()
    begin_model(client)
    push(client, 1)
    client.checkpoint(tmp_path / "saved")
    before = contents(client)
    push(client, 2)
    client.restore(tmp_path / "saved")
    servers.stop(0)
    servers.start(0)
    client.forget_versions()
    assert same(contents(client), before)


def test_a_missing_checkpoint_and_other_mistakes_are_named(start: Start, tmp_path: Path) -> None:
    client, servers = start()
    begin_model(client)
    with pytest.raises(OutsideError, match="no snapshot"):
        client.restore(tmp_path / "nothing")
    with pytest.raises(InputError, match="no table 'tag'"):
        client.pull_rows("tag", [1])
    with pytest.raises(InputError, match="other settings"):
        client.add_tables([TableSpec.of(name="user", dim=5)])
    with pytest.raises(InputError, match="no rule"):
        client.push_gradients({"weight": torch.ones(2, 3)})
    with pytest.raises(InputError, match="must have 6 numbers"):
        client.push_gradients({"weight": torch.ones(5)}, rule=SGD)
    with pytest.raises(InputError, match="whole numbers"):
        client.pull_rows("user", [1.5])
    with pytest.raises(InputError, match="a row of 4 numbers"):
        client.push_gradients(rows={"user": ([1], torch.ones(1, 3))}, rule=SGD)
    with pytest.raises(ConfigError, match="host:port"):
        Client(["nowhere"])
    with pytest.raises(PortInUse, match="in use"):
        listen(("127.0.0.1", int(servers.addresses[0].split(":")[1])), secret="")
    with pytest.raises(ConfigError, match="needs a secret"):
        listen(("0.0.0.0", 0), secret="")


def test_a_stranger_learns_nothing(start: Start) -> None:
    _, servers = start(secret="a secret of this job")
    with Client(servers.addresses, secret="another one") as stranger, pytest.raises(OutsideError, match="secret"):
        stranger.stats()


def test_rows_are_exported_and_put_elsewhere(start: Start) -> None:
    client, _ = start(2)
    begin_model(client)
    for seed in range(3):
        push(client, seed)
    version = client.stats()[0]["version"]
    ids, rows = client.export_rows("user")
    assert torch.equal(client.pull_rows("user", ids), rows)
    client.push_gradients(rows={"user": ([5], torch.ones(1, 4))}, rule=SGD)
    assert client.export_rows("user", since=version)[0].tolist() == [5]
    other, _ = start(1, name="other")
    other.push_model(tables=[USER])
    other.put_rows("user", TableRows(ids, rows, {}, 3))
    assert torch.equal(other.pull_rows("user", ids), rows)
