"""Segments are cut into shards that cover every lane of every batch once, and may end early."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trek.train.loop.segment import Segment

segments = st.builds(
    lambda start, length, lanes, accumulate, lead: Segment(start, start + length, lanes, accumulate, lead),
    st.integers(0, 50),
    st.integers(1, 300),
    st.integers(1, 5),
    st.integers(1, 4),
    st.none() | st.integers(0, 5),
)


@given(segments)
def test_every_lane_of_every_batch_is_in_one_shard(segment: Segment) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for number in range(segment.num_shards):
        work = segment.work(number)
        assert (work.start - segment.start) % segment.accumulate == 0, "a shard begins with a step"
        seen.update((work.lane, batch) for batch in range(work.start, work.stop))
    batches = range(segment.start, segment.stop)
    assert seen == Counter((lane, batch) for lane in range(segment.num_lanes) for batch in batches)


@given(segments, st.data())
def test_a_segment_that_ends_early_ends_between_batches(segment: Segment, data: st.DataObject) -> None:
    num_rows = data.draw(st.integers(0, segment.num_shards // segment.num_lanes))
    end = segment.end(num_rows * segment.num_lanes)
    trained = {batch for n in range(num_rows * segment.num_lanes) for batch in _batches(segment, n)}
    assert trained == set(range(segment.start, end))


def test_with_a_lead_that_is_limited_a_shard_is_one_step() -> None:
    assert Segment(0, 1000, 4).shard_batches == 8
    assert Segment(0, 1000, 4, accumulate=2, max_lead=3).shard_batches == 2


def _batches(segment: Segment, number: int) -> range:
    work = segment.work(number)
    return range(work.start, work.stop)
