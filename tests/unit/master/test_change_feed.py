"""The feed of changes: whoever comes back is told what was written meanwhile, and nobody misses a write."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from trek.control.store import Store, Subject
from trek.master.change_feed import ChangeFeed

pytestmark = pytest.mark.anyio


class Written:
    """A store as the feed sees it."""

    def __init__(self) -> None:
        self.writes: list[Subject | None] = []

    def changes(self, since: int) -> tuple[int, list[Subject] | None]:
        new = self.writes[max(since, 0) :]
        return len(self.writes), None if None in new else [one for one in new if one is not None]


async def always() -> bool:
    return True


async def read(events: AsyncIterator[str]) -> tuple[str, Any]:
    event = await anext(events)
    lines = dict(line.split(": ", 1) for line in event.strip().splitlines())
    return lines["id"], json.loads(lines["data"])["subjects"]


async def test_a_new_reader_is_told_that_anything_may_have_changed() -> None:
    feed = ChangeFeed(Written().changes, poll_s=0)
    assert (await read(feed.follow("", is_open=always)))[1] is None
    assert (await read(feed.follow("other-3", is_open=always)))[1] is None


async def test_a_reader_is_told_what_is_written() -> None:
    written = Written()
    events = ChangeFeed(written.changes, poll_s=0).follow("", is_open=always)
    await read(events)
    written.writes += [("metrics", 3), ("logs", 3)]
    assert (await read(events))[1] == ["metrics:3", "logs:3"]
    written.writes += [("metrics", 4), None]
    assert (await read(events))[1] is None


async def test_a_reader_who_comes_back_misses_nothing() -> None:
    written = Written()
    feed = ChangeFeed(written.changes, poll_s=0)
    last, _ = await read(feed.follow("", is_open=always))
    written.writes.append(("metrics", 7))
    last, missed = await read(feed.follow(last, is_open=always))
    assert missed == ["metrics:7"]
    assert (await read(feed.follow(last, is_open=always)))[1] == []


async def test_the_feed_ends_with_the_rights_of_its_reader() -> None:
    async def never() -> bool:
        return False

    assert [event async for event in ChangeFeed(Written().changes, poll_s=0).follow("", is_open=never)] == []


async def test_a_store_tells_its_writes(store: Store) -> None:
    number, _ = store.changes(-1)
    with store.writing(about=[("metrics", 1)]):
        pass
    assert store.changes(number) == (number + 1, [("metrics", 1)])
    with store.writing():
        pass
    assert store.changes(number) == (number + 2, None)
    assert store.changes(number + 2) == (number + 2, [])
