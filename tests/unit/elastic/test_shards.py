"""The shard queue: every record once, whatever happens to those who hold it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trek.elastic.shards import Lease, Shard, ShardPlan, ShardQueue
from trek.errors import InputError


def test_records_are_handed_out_in_order_and_end_with_a_short_shard() -> None:
    queue = ShardQueue(ShardPlan(num_records=10, shard_records=4))
    shards = [_claim(queue).shard for _ in range(3)]
    assert shards == [Shard(0, 4), Shard(4, 8), Shard(8, 10)]
    assert queue.claim("w", now_s=0) is None


def test_a_lapsed_lease_is_offered_again_before_what_follows() -> None:
    queue = ShardQueue(ShardPlan(num_records=10, shard_records=5, lease_s=5))
    lost = _claim(queue)
    queue.expire(6)
    assert _claim(queue, now_s=6).shard == lost.shard


def test_a_late_commit_of_a_worker_that_was_given_up_counts_nothing() -> None:
    """ElasticDL counted such records twice."""
    queue = ShardQueue(ShardPlan(num_records=10, shard_records=10, lease_s=5))
    lost = _claim(queue)
    again = _claim(queue, member="other", now_s=6)
    assert not queue.commit(lost.number, step=1)
    assert queue.commit(again.number, step=2)
    assert queue.is_done


def test_a_repeated_commit_is_answered_alike() -> None:
    queue = ShardQueue(ShardPlan(num_records=4, shard_records=4))
    lease = _claim(queue)
    assert queue.commit(lease.number, step=1)
    assert queue.commit(lease.number, step=1), "the answer was lost, and the queue is done meanwhile"
    assert queue.counts.num_records_committed == 4


def test_a_shard_outlives_any_number_of_workers() -> None:
    """ElasticDL dropped a shard at its third failure, and preemption counted as one."""
    queue = ShardQueue(ShardPlan(num_records=4, shard_records=4))
    for _ in range(10):
        _claim(queue, member="mortal")
        assert queue.release("mortal") == 1
    assert queue.commit(_claim(queue).number, step=1)


@pytest.mark.parametrize("field", ["num_records", "shard_records"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "4", True])
def test_a_plan_of_nothing_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{field} must be a whole number of at least 1"):
        ShardPlan(**{"num_records": 1, "shard_records": 1, field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, "soon", float("nan")])
def test_a_lease_without_a_time_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="lease_s must be a number of seconds greater than 0"):
        ShardPlan(4, 2, lease_s=value)  # type: ignore[arg-type]


def test_a_shard_that_was_leased_before_is_known_by_it() -> None:
    queue = ShardQueue(ShardPlan(num_records=2, shard_records=1))
    first = _claim(queue)
    queue.release("w")
    assert not first.is_again
    assert [_claim(queue).is_again for _ in range(2)] == [True, False]


def test_nobody_gets_further_ahead_of_the_slowest_than_allowed() -> None:
    queue = ShardQueue(ShardPlan(num_records=9, shard_records=1, num_lanes=3, max_lead=1))
    slow, *others = [_claim(queue) for _ in range(6)]
    for lease in others:
        queue.commit(lease.number, step=0)
    assert queue.claim("fast", now_s=0) is None
    queue.commit(slow.number, step=0)
    assert _claim(queue).shard.start == 6


@given(st.integers(1, 20), st.integers(1, 4), st.data())
def test_a_closed_queue_is_done_when_whole_rows_are(num_rows: int, num_lanes: int, data: st.DataObject) -> None:
    queue = ShardQueue(ShardPlan(num_records=num_rows * num_lanes, shard_records=1, num_lanes=num_lanes))
    held = [_claim(queue) for _ in range(data.draw(st.integers(0, num_rows * num_lanes)))]
    for lease in data.draw(st.permutations(held))[: len(held) // 2]:
        queue.commit(lease.number, step=0)
    queue.close()
    queue = ShardQueue.restore(json.loads(json.dumps(queue.snapshot())))
    queue.release("w")
    while (lease := queue.claim("other", now_s=0)) is not None:
        queue.commit(lease.number, step=0)
    assert queue.is_done
    assert queue.reach == -(-len(held) // num_lanes) * num_lanes == queue.counts.num_records_committed


def _claim(queue: ShardQueue, *, member: str = "w", now_s: float = 0) -> Lease:
    lease = queue.claim(member, now_s=now_s)
    assert lease is not None
    return lease


class QueueMachine(RuleBasedStateMachine):
    """Workers claim, commit, die, fall asleep and wake up, and the queue is restored from snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        plan = ShardPlan(num_records=11, shard_records=1, lease_s=10)
        self.queue = ShardQueue(plan)
        self.valid: dict[int, Lease] = {}
        self.ever: list[Lease] = []
        self.done: list[Shard] = []

    @rule(member=st.sampled_from("abc"))
    def claim(self, member: str) -> None:
        lapsed = [n for n, lease in self.valid.items() if lease.until_s <= self.now]
        lease = self.queue.claim(member, now_s=self.now)
        if lease is None:
            return
        if lease.shard in [self.valid[number].shard for number in lapsed]:
            self.valid = {n: one for n, one in self.valid.items() if n not in lapsed}
        assert all(lease.shard != other.shard for other in self.valid.values()), "leased twice at a time"
        assert lease.shard not in self.done
        assert all(lease.number != other.number for other in self.ever)
        self.valid[lease.number] = lease
        self.ever.append(lease)

    @precondition(lambda self: self.ever)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.ever))
        was_done = lease.shard in self.done
        if self.queue.commit(lease.number, step=1) and not was_done:
            assert lease.number in self.valid
            self.done.append(lease.shard)
            del self.valid[lease.number]

    @rule(member=st.sampled_from("abc"))
    def die(self, member: str) -> None:
        self.queue.release(member)
        self.valid = {n: lease for n, lease in self.valid.items() if lease.member != member}

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.queue.expire(self.now)
        self.valid = {n: lease for n, lease in self.valid.items() if lease.until_s > self.now}

    @rule()
    def crash(self) -> None:
        self.queue = ShardQueue.restore(json.loads(json.dumps(self.queue.snapshot())))

    @invariant()
    def every_record_is_counted_once(self) -> None:
        assert len(set(self.done)) == len(self.done)
        assert self.queue.counts.num_committed == len(self.done)

    def teardown(self) -> None:
        self.queue.expire(self.now + 1000)
        while not self.queue.is_done:
            lease = self.queue.claim("last", now_s=self.now)
            assert lease is not None, "a shard was lost"
            assert self.queue.commit(lease.number, step=1)
            self.done.append(lease.shard)
        plan = self.queue.plan
        assert sorted(map(str, self.done)) == sorted(map(str, plan.shards()))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40)


@given(st.integers(1, 500), st.integers(1, 60))
def test_shards_cover_every_record_once(num_records: int, shard_records: int) -> None:
    shards = list(ShardPlan(num_records, shard_records).shards())
    assert [at for shard in shards for at in range(shard.start, shard.stop)] == list(range(num_records))
