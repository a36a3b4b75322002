"""Segment: the batches between two meetings of asynchronous workers, cut into shards that they lease. Pure.

A global batch has one share for each worker that there may be at most, whoever is there; a share of it is called a
lane. A shard is some consecutive batches of one lane, so every share of every batch is in exactly one shard. Shards are
numbered from the front of the segment, the lanes of the same batches in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from trek.elastic.shards import ShardPlan

_SHARDS_PER_WORKER = 8
_MAX_BATCHES = 8


@dataclass(frozen=True)
class ShardWork:
    """Batches `start` to `stop` (exclusive) of an epoch, of one lane."""

    number: int
    lane: int
    start: int
    stop: int


@dataclass(frozen=True)
class Segment:
    """Batches `start` to `stop` (exclusive) of an epoch."""

    start: int
    stop: int
    num_lanes: int
    accumulate: int = 1
    max_lead: int | None = None
    """How many batches workers may be ahead of the slowest."""

    @property
    def shard_batches(self) -> int:
        """Batches of a shard: few enough that nobody waits long for the last one, and whole steps."""
        steps = -(-(self.stop - self.start) // self.accumulate)
        wanted = min(_MAX_BATCHES, steps // _SHARDS_PER_WORKER)
        return self.accumulate * max(1, wanted if self.max_lead is None else 1)

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return -(-(self.stop - self.start) // self.shard_batches) * self.num_lanes

    @property
    def plan(self) -> ShardPlan:
        """What the coordinator hands out: numbers of shards."""
        lead = None if self.max_lead is None else self.max_lead // self.accumulate
        return ShardPlan(num_records=self.num_shards, shard_records=1, num_lanes=self.num_lanes, max_lead=lead)

    def end(self, num_shards: int) -> int:
        """Where the segment ends if only its first shards were handed out, which are all lanes of some batches."""
        assert num_shards % self.num_lanes == 0
        return min(self.start + num_shards // self.num_lanes * self.shard_batches, self.stop)

    def work(self, number: int) -> ShardWork:
        """The shard of this number."""
        block, lane = divmod(number, self.num_lanes)
        start = self.start + block * self.shard_batches
        return ShardWork(number, lane, start, min(start + self.shard_batches, self.stop))
