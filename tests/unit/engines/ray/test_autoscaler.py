"""How many workers an autoscaler is asked for that refuses what exceeds its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

from trek.engines.ray.autoscaler import RoomSearch


@given(limit=st.integers(0, 10_000), wanted=st.integers(1, 10_000))
def test_the_most_that_is_granted_is_found_in_few_requests(limit: int, wanted: int) -> None:
    search = RoomSearch()
    asked = [search.choose(wanted)]
    for _ in range(16):
        search.note(asked[-1], is_granted=asked[-1] <= limit)
        asked.append(search.choose(wanted))
    assert asked[0] == wanted
    assert asked[-1] == asked[-2] == min(limit, wanted)


def test_what_is_granted_no_more_is_not_asked_for_again() -> None:
    search = RoomSearch()
    search.note(8, is_granted=False)
    search.note(4, is_granted=True)
    search.note(4, is_granted=False)
    assert search.choose(8) == 3
    assert search.choose(2) == 2
