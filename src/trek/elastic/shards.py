"""ShardQueue: leases ranges of records to workers, and takes each back exactly once.

Pure: the time is an argument, nothing is read or written, and the same calls give the same answers, so that a journal
of the calls is all that has to be kept. Knows nothing about files or tensors: what a position means is up to the
workers.

Contracts: a lease has a number that is never used again; a commit counts only by the number of the lease that is valid
now, so that a worker that was given up and wakes up later commits nothing. No shard is dropped. A queue that is closed
hands out nothing new: it is done once everything that was handed out before is committed, which is always everything
up to one position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trek.elastic.checks import require_count, require_seconds


@dataclass(frozen=True)
class Shard:
    """Positions `start` to `stop` (exclusive)."""

    start: int
    stop: int


@dataclass(frozen=True)
class Lease:
    """A shard that is one worker's until it commits or is given up."""

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
    lease_s: float = 60.0
    """How long a lease is valid without being renewed."""
    num_lanes: int = 1
    """So many records in a row belong together: a queue that is closed completes the last row."""
    max_lead: int | None = None
    """How many rows a shard may be ahead of the oldest leased one; None: any number."""

    def __post_init__(self) -> None:
        for name in ("num_records", "shard_records", "num_lanes"):
            require_count(getattr(self, name), name)
        if self.max_lead is not None:
            require_count(self.max_lead, "max_lead", least=0)
        require_seconds(self.lease_s, "lease_s")

    def shards(self) -> Iterator[Shard]:
        """The shards, in order."""
        for start in range(0, self.num_records, self.shard_records):
            yield Shard(start, min(start + self.shard_records, self.num_records))


@dataclass(frozen=True)
class ShardCounts:
    """How far a queue is."""

    num_committed: int
    num_leased: int
    num_records_committed: int


class ShardQueue:
    """The shards of a plan: waiting, leased or committed."""

    def __init__(self, plan: ShardPlan) -> None:
        self.plan = plan
        self._waiting = deque(plan.shards())
        self._leases: dict[int, Lease] = {}
        self._committed: dict[int, int] = {}
        """Lease number -> step: a repeated commit is answered as the first one."""
        self._next_number = 1
        self._num_records = 0
        self._reach = 0
        """Up to where the records were handed out at least once."""

    @property
    def reach(self) -> int:
        """Up to which record everything was handed out."""
        return self._reach

    @property
    def is_done(self) -> bool:
        """Whether every shard is committed."""
        return not self._waiting and not self._leases

    @property
    def counts(self) -> ShardCounts:
        """How far it is."""
        return ShardCounts(len(self._committed), len(self._leases), self._num_records)

    def claim(self, member: str, *, now_s: float) -> Lease | None:
        """Lease the next shard to `member`; None when all are leased, or everything is done.

        A lease that lapsed returns to the front, so that the order is disturbed as little as possible.
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
        end = -(-self._reach // self.plan.num_lanes) * self.plan.num_lanes
        self._waiting = deque(shard for shard in self._waiting if shard.start < end)

    def commit(self, number: int, *, step: int) -> bool:
        """Count the shard of lease `number` as done by `step`; False if the lease is not valid any more.

        A commit that is repeated, since its answer was lost, is answered as it was the first time.
        """
        if number in self._committed:
            return True
        lease = self._leases.pop(number, None)
        if lease is None:
            return False
        self._committed[number] = step
        self._num_records += lease.shard.stop - lease.shard.start
        return True

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

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "plan": asdict(self.plan),
            "waiting": [[shard.start, shard.stop] for shard in self._waiting],
            "leases": [
                [lease.number, [lease.shard.start, lease.shard.stop], lease.member, lease.until_s, lease.is_again]
                for lease in self._leases.values()
            ],
            "committed": list(self._committed.items()),
            "numbers": [self._next_number, self._num_records, self._reach],
        }

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> ShardQueue:
        """The queue whose `snapshot` this is."""
        queue = cls(ShardPlan(**snapshot["plan"]))
        queue._waiting = deque(Shard(*shard) for shard in snapshot["waiting"])
        leases = [Lease(number, Shard(*shard), *rest) for number, shard, *rest in snapshot["leases"]]
        queue._leases = {lease.number: lease for lease in leases}
        queue._committed = dict(snapshot["committed"])
        queue._next_number, queue._num_records, queue._reach = snapshot["numbers"]
        return queue
