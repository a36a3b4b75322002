"""ShardQueue: hands out ranges of records to workers that share an epoch, and takes each back exactly once.

Pure: the time is an argument, nothing is read or written, and the same calls give the same answers, so that a journal
of the calls is all that has to be kept. Knows nothing about files or tensors: a shard names positions in the order of
an epoch (`trek.data.batching.order.Order`), which every worker can work out by itself.

Contracts: an epoch begins once every shard of the one before is committed or set aside. A lease has a number that is
never used again; a commit counts only by the number of the lease that is valid now, so that a worker that was given up
and wakes up later commits nothing. No shard is dropped: one that fails too often stops the job, or is set aside and
counted where the plan says so. A queue that is closed hands out nothing new: it is done once everything that was handed
out before is committed, which is always everything up to one position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from trek.elastic.checks import require_count, require_seconds
from trek.errors import InputError

OnFailure = Literal["stop", "set_aside"]


@dataclass(frozen=True)
class Shard:
    """Positions `start` to `stop` (exclusive) in the order of an epoch."""

    epoch: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"records {self.start} to {self.stop - 1} of epoch {self.epoch}"


@dataclass(frozen=True)
class Lease:
    """A shard that is one worker's until it commits, fails, or is given up."""

    number: int
    shard: Shard
    member: str
    until_s: float
    is_again: bool = False
    """Whether the shard was leased before, so that a part of its work may have been done."""


@dataclass(frozen=True)
class ShardPlan:
    """What there is to hand out."""

    num_records: int
    shard_records: int
    num_epochs: int = 1
    lease_s: float = 60.0
    """How long a lease is valid without being renewed."""
    max_failures: int = 3
    """A shard that failed more often is bad; a worker's death is not a failure of its shards."""
    on_failure: OnFailure = "stop"
    """What a bad shard does: "stop" the job, or be "set_aside" and counted."""
    num_lanes: int = 1
    """So many records in a row belong together: a queue that is closed completes the last row."""
    max_lead: int | None = None
    """How many rows a shard may be ahead of the oldest leased one; None: any number."""

    def __post_init__(self) -> None:
        for name in ("num_records", "shard_records", "num_epochs", "num_lanes"):
            require_count(getattr(self, name), name)
        require_count(self.max_failures, "max_failures", least=0)
        if self.max_lead is not None:
            require_count(self.max_lead, "max_lead", least=0)
        require_seconds(self.lease_s, "lease_s")
        if self.on_failure not in ("stop", "set_aside"):
            raise InputError(f"on_failure must be 'stop' or 'set_aside', got {self.on_failure!r}.")

    def shards(self, epoch: int) -> Iterator[Shard]:
        """The shards of an epoch, in order."""
        for start in range(0, self.num_records, self.shard_records):
            yield Shard(epoch, start, min(start + self.shard_records, self.num_records))


@dataclass(frozen=True)
class ShardCounts:
    """How far a queue is, over all epochs."""

    epoch: int
    num_committed: int
    num_leased: int
    num_set_aside: int
    num_records_committed: int


class BadShard(Exception):
    """A shard failed too often, and the plan says that the job stops then."""


class ShardQueue:
    """The shards of a plan: waiting, leased, committed or set aside."""

    def __init__(self, plan: ShardPlan) -> None:
        self.plan = plan
        self.epoch = 0
        self.set_aside: dict[Shard, str] = {}
        """Shards that were given up, with the reason, over all epochs."""
        self._waiting = deque(plan.shards(0))
        self._leases: dict[int, Lease] = {}
        self._committed: dict[int, int] = {}
        """Lease number -> step, of this epoch and the one before: a repeated commit is answered as the first one."""
        self._committed_before: dict[int, int] = {}
        self._failures: dict[Shard, int] = {}
        self._next_number = 1
        self._num_committed = 0
        self._num_records = 0
        self._reach = 0
        """Up to where the records of this epoch were handed out at least once."""
        self._is_closed = False

    @property
    def reach(self) -> int:
        """Up to which record of its last epoch everything was handed out."""
        return self._reach

    @property
    def is_done(self) -> bool:
        """Whether every shard of every epoch is committed or set aside."""
        return self.epoch >= self.plan.num_epochs

    @property
    def counts(self) -> ShardCounts:
        """How far it is."""
        return ShardCounts(self.epoch, self._num_committed, len(self._leases), len(self.set_aside), self._num_records)

    def claim(self, member: str, *, now_s: float) -> Lease | None:
        """Lease the next shard of the epoch to `member`; None when all are leased, or everything is done.

        A lease that lapsed returns to the front, so that the order of an epoch is disturbed as little as possible.
        """
        if not self._waiting:
            self.expire(now_s)
        if not self._waiting or self._is_too_far(self._waiting[0]):
            return None
        shard = self._waiting.popleft()
        is_again = shard.start < self._reach
        lease = Lease(self._next_number, shard, member, now_s + self.plan.lease_s, is_again)
        self._reach = max(self._reach, shard.stop)
        self._next_number += 1
        self._leases[lease.number] = lease
        return lease

    def _is_too_far(self, shard: Shard) -> bool:
        lanes, max_lead = self.plan.num_lanes, self.plan.max_lead
        oldest = min((lease.shard.start for lease in self._leases.values()), default=shard.start)
        return max_lead is not None and shard.start // lanes - oldest // lanes > max_lead

    def close(self) -> None:
        """Hand out nothing beyond the row that was handed out last; what was, must still be committed by somebody."""
        self._is_closed = True
        end = -(-self._reach // self.plan.num_lanes) * self.plan.num_lanes
        self._waiting = deque(shard for shard in self._waiting if shard.start < end)
        self._begin_next_epoch()

    def commit(self, number: int, *, step: int) -> bool:
        """Count the shard of lease `number` as done by `step`; False if the lease is not valid any more.

        A commit that is repeated, since its answer was lost, is answered as it was the first time.
        """
        if number in self._committed or number in self._committed_before:
            return True
        lease = self._leases.pop(number, None)
        if lease is None:
            return False
        self._committed[number] = step
        self._num_committed += 1
        self._num_records += lease.shard.stop - lease.shard.start
        self._begin_next_epoch()
        return True

    def fail(self, number: int, *, reason: str) -> None:
        """Take back the shard of a lease whose records could not be used; BadShard when that happened too often."""
        lease = self._leases.pop(number, None)
        if lease is None:
            return
        shard = lease.shard
        self._failures[shard] = self._failures.get(shard, 0) + 1
        if self._failures[shard] <= self.plan.max_failures:
            self._waiting.appendleft(shard)
            return
        if self.plan.on_failure == "stop":
            self._waiting.appendleft(shard)
            raise BadShard(f"{shard} failed {self._failures[shard]} times, the last time with: {reason}")
        self.set_aside[shard] = reason
        self._begin_next_epoch()

    def renew(self, member: str, *, now_s: float) -> None:
        """Extend the leases of a worker that is known to be alive."""
        for number, lease in self._leases.items():
            if lease.member == member:
                self._leases[number] = replace(lease, until_s=now_s + self.plan.lease_s)

    def renew_all(self, now_s: float) -> None:
        """Extend every lease: whoever keeps the queue was away, and could not hear of anybody."""
        for member in {lease.member for lease in self._leases.values()}:
            self.renew(member, now_s=now_s)

    def held_by(self, member: str) -> Lease | None:
        """The oldest lease of a worker."""
        return next((lease for lease in self._leases.values() if lease.member == member), None)

    def holds(self, member: str) -> bool:
        """Whether a worker has a lease."""
        return self.held_by(member) is not None

    def release(self, member: str) -> int:
        """Take back everything that a worker holds, since it is gone; how many shards that were."""
        return self._take_back(lambda lease: lease.member == member)

    def expire(self, now_s: float) -> int:
        """Take back the leases that lapsed; how many those were."""
        return self._take_back(lambda lease: lease.until_s <= now_s)

    def _take_back(self, is_lost: Any) -> int:
        lost = [lease for lease in self._leases.values() if is_lost(lease)]
        for lease in sorted(lost, key=lambda lease: lease.shard.start, reverse=True):
            del self._leases[lease.number]
            self._waiting.appendleft(lease.shard)
        return len(lost)

    def _begin_next_epoch(self) -> None:
        if self._waiting or self._leases or self.is_done:
            return
        self._committed_before, self._committed = self._committed, {}
        if self._is_closed:  # the reach stays where the queue ended
            self.epoch = self.plan.num_epochs
            return
        self.epoch += 1
        if not self.is_done:
            self._reach = 0
            self._waiting.extend(self.plan.shards(self.epoch))

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "plan": asdict(self.plan),
            "epoch": self.epoch,
            "waiting": [_spelled(shard) for shard in self._waiting],
            "leases": [
                [lease.number, _spelled(lease.shard), lease.member, lease.until_s, lease.is_again]
                for lease in self._leases.values()
            ],
            "committed": [list(self._committed.items()), list(self._committed_before.items())],
            "failures": [[_spelled(shard), count] for shard, count in self._failures.items()],
            "set_aside": [[_spelled(shard), reason] for shard, reason in self.set_aside.items()],
            "numbers": [self._next_number, self._num_committed, self._num_records],
            "reach": [self._reach, self._is_closed],
        }

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> ShardQueue:
        """The queue whose `snapshot` this is."""
        queue = cls(ShardPlan(**snapshot["plan"]))
        queue.epoch = snapshot["epoch"]
        queue._waiting = deque(Shard(*shard) for shard in snapshot["waiting"])
        leases = [Lease(number, Shard(*shard), *rest) for number, shard, *rest in snapshot["leases"]]
        queue._leases = {lease.number: lease for lease in leases}
        queue._committed, queue._committed_before = (dict(pairs) for pairs in snapshot["committed"])
        queue._failures = {Shard(*shard): count for shard, count in snapshot["failures"]}
        queue.set_aside = {Shard(*shard): reason for shard, reason in snapshot["set_aside"]}
        queue._next_number, queue._num_committed, queue._num_records = snapshot["numbers"]
        queue._reach, queue._is_closed = snapshot["reach"]
        return queue


def _spelled(shard: Shard) -> list[int]:
    return [shard.epoch, shard.start, shard.stop]
