"""The coordinator over real connections: formations, losses, a crash of its own, shards."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from tests.unit.elastic.conftest import SECRET, Served
from trek.elastic.coordinator_client import CoordinatorClient, Dismissed, Formation, MemberClient
from trek.elastic.membership_settings import MembershipSettings
from trek.errors import TrekError
from trek.system.clock import SystemClock

Serve = Callable[[MembershipSettings], Served]


def test_workers_form_a_generation_and_survivors_the_next_one(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 3))
    with _members(served, "abc") as members, ThreadPoolExecutor() as pool:
        formed = _formed(pool, [member.ready for member in members])
        worlds = [f.world for f in formed]
        assert sorted((w.rank, w.size, w.generation) for w in worlds) == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
        by_rank = [member for _, member in sorted(zip(worlds, members, strict=True), key=lambda pair: pair[0].rank)]
        by_rank[0].close()
        again = _formed(pool, [lambda: by_rank[1].arrive((4, 0)), lambda: by_rank[2].arrive((5, 0))])
        assert [(f.world.generation, f.world.rank, f.has_source) for f in again] == [(2, 1, True), (2, 0, True)]


def test_a_death_breaks_off_what_the_others_wait_for(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 2))
    broken = threading.Event()
    with _member(served, "a", on_abandon=broken.set) as a, _member(served, "b") as b, ThreadPoolExecutor() as pool:
        _formed(pool, [a.ready, b.ready])
        b.close()
        assert broken.wait(20)
        assert a.is_abandoned


def test_a_joiner_is_announced_and_enters_at_the_boundary(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 2, settle_s=0))
    with _member(served, "a") as a, _member(served, "b") as b, ThreadPoolExecutor() as pool:
        assert a.ready().world.size == 1
        joining = pool.submit(b.ready)
        _wait_until(lambda: a.wants_regroup)
        again = a.arrive((2, 0))
        assert (again.world.rank, again.world.local_size, again.has_source) == (0, 2, True)
        assert joining.result(20).world.rank == 1


def test_the_coordinator_may_crash_at_any_time(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 2))
    with _members(served, "ab") as members, ThreadPoolExecutor() as pool:
        waiting = pool.submit(members[0].ready)
        served.restart()
        formed = [waiting, pool.submit(members[1].ready)]
        assert [f.result(20).world.size for f in formed] == [2, 2]
        served.restart()
        again = [pool.submit(members[0].arrive, (3, 0))]
        served.restart()
        again.append(pool.submit(members[1].arrive, (3, 0)))
        assert [f.result(20).world.generation for f in again] == [2, 2]


def test_a_worker_that_was_given_up_is_refused_when_it_wakes_up(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 1))
    with _member(served, "a") as a, _control(served) as control:
        a.ready()
        control.call("lose", name="a", reason="not heard of")
        with pytest.raises(Dismissed, match="not heard of"):
            a.finish()


def test_a_member_that_cannot_be_heard_is_put_out(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 1, heartbeat_s=0.3, settle_s=0))
    with _member(served, "a", heartbeat_s=1000) as a, _control(served) as control:
        a.ready()
        _wait_until(lambda: control.call("status")["put_out"] == ["a"])


def test_its_status_tells_what_happened(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 2, settle_s=0))
    with _member(served, "a") as a, _control(served) as control:
        a.ready()
        status = control.call("status")
        assert (status["generation"], status["num_training"], status["num_missing"]) == (1, 1, 1)
        assert [change["text"] for change in status["changes"]] == ["joins as rank 0", "starts with 1 worker"]
        assert control.call("scale", num_workers=1) == 1
        assert control.call("status", num_changes=1)["num_missing"] == 0


def test_shards_survive_a_crash_with_their_leases(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 1))
    with _member(served, "a") as a:
        a.call("open_shards", queue="train", plan={"num_records": 10, "shard_records": 4})
        first = a.call("next_shard", queue="train")["lease"]
        served.restart()
        answer = a.call("next_shard", queue="train", done=first[0], step=1)
        assert (first[1:], answer["is_accepted"], answer["lease"][1:]) == ([0, 4, False], True, [4, 8, False])
        assert a.call("next_shard", queue="train", done=first[0], step=1) == answer, "a repeated request"
        served.restart()
        assert a.call("count_shards", queue="train")["num_records_committed"] == 4
        assert a.call("commit_shard", queue="train", number=answer["lease"][0], step=2)
        assert not a.call("commit_shard", queue="train", number=99, step=2)


def test_the_first_value_is_agreed_on_and_survives_a_crash(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 2))
    with _member(served, "a") as a:
        assert a.call("agree", key="folder", value=None) is None
        assert a.call("agree", key="folder", value="run-1") == "run-1"
        for _ in range(2):  # the second one reads what the first has summed up
            served.restart()
        assert a.call("agree", key="folder", value="run-2") == "run-1"
        assert a.call("agree", key="another", value="run-2") == "run-2"


def test_the_shards_of_a_dead_worker_are_offered_again(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 2))
    with _member(served, "a") as a, _member(served, "b") as b:
        a.call("open_shards", queue="train", plan={"num_records": 4, "shard_records": 4})
        lost = a.call("next_shard", queue="train")["lease"]
        assert "lease" not in b.call("next_shard", queue="train")
        a.close()
        _wait_until(lambda: b.call("count_shards", queue="train")["num_leased"] == 0)
        assert b.call("next_shard", queue="train")["lease"][1:] == [*lost[1:3], True]


def test_a_closed_queue_ends_where_its_last_row_is_complete_also_after_a_crash(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 1))
    with _member(served, "a") as a:
        a.call("open_shards", queue="0", plan={"num_records": 1, "shard_records": 1})
        a.call("open_shards", queue="1", plan={"num_records": 9, "shard_records": 1, "num_lanes": 3}, forgets="0")
        first = a.call("next_shard", queue="1")["lease"]
        a.call("close_shards", queue="1")
        served.restart()
        second = a.call("next_shard", queue="1", done=first[0])["lease"]
        third = a.call("next_shard", queue="1", done=second[0])["lease"]
        assert [second[1], third[1]] == [1, 2]
        assert a.call("next_shard", queue="1", done=third[0]) == {"is_accepted": True, "is_done": True, "reach": 3}
        with pytest.raises(TrekError, match="'0' are not open"):
            a.call("next_shard", queue="0")


def test_another_plan_under_the_same_name_is_refused(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 1))
    with _control(served) as control:
        control.call("open_shards", queue="train", plan={"num_records": 4, "shard_records": 4})
        with pytest.raises(TrekError, match="were asked for"):
            control.call("open_shards", queue="train", plan={"num_records": 5, "shard_records": 4})


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("next_shard", "shards 'none' are not open. Open them with open_shards first"),
        ("commit_shard", "shards 'none' are not open"),
        ("count_shards", "shards 'none' are not open"),
        ("dance", "the coordinator has no request 'dance'"),
    ],
)
def test_a_wrong_request_is_an_error_and_its_sender_stays_a_member(serve: Serve, do: str, message: str) -> None:
    """It ended the sender's connection, and with it the member."""
    served = serve(MembershipSettings(1, 1))
    more = {"number": 1, "step": 1} if do == "commit_shard" else {}
    with _member(served, "a") as a:
        a.ready()
        with pytest.raises(TrekError, match=message):
            a.call(do, queue="none", **more)
        assert list(a.call("status")["members"]) == ["a"]


def test_a_stranger_learns_nothing(serve: Serve) -> None:
    served = serve(MembershipSettings(1, 1))
    with _control(served) as control:
        control.call("status")  # it listens now
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as stranger:
        stranger.sendall(b"\0" * 64)
        answer = b""
        with suppress(ConnectionResetError):
            while part := stranger.recv(4096):
                answer += part
    assert len(answer) <= 32, "the challenge, and nothing after it"


@contextmanager
def _member(served: Served, name: str, **settings: object) -> Iterator[MemberClient]:
    client = MemberClient(
        ("127.0.0.1", served.port),
        secret=SECRET,
        clock=SystemClock(),
        name=name,
        host="here",
        **settings,  # type: ignore[arg-type]
    )
    client.start()
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _members(served: Served, names: str) -> Iterator[list[MemberClient]]:
    if not names:
        yield []
        return
    with _member(served, names[0]) as first, _members(served, names[1:]) as rest:
        yield [first, *rest]


@contextmanager
def _control(served: Served) -> Iterator[CoordinatorClient]:
    client = CoordinatorClient(("127.0.0.1", served.port), secret=SECRET, clock=SystemClock())
    client.start()
    try:
        yield client
    finally:
        client.close()


def _formed(pool: ThreadPoolExecutor, calls: list[Callable[[], Formation]]) -> list[Formation]:
    started = [pool.submit(call) for call in calls]
    return [one.result(20) for one in started]


def _wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(2000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen within 20 s")
