"""CurveCache: what is kept, and what is forgotten first."""

from __future__ import annotations

from trek.control.metrics.curve_cache import CurveCache
from trek.control.metrics.overview import Overview


def test_a_curve_is_found_at_its_version_alone() -> None:
    cache = CurveCache()
    kept = Overview([(1, 0.5), (2, None), (3, 0.25)], num_undefined=7)
    cache.keep("a", kept, version=7)
    assert cache.find("a", version=7) == kept
    assert cache.find("a", version=8) is None
    assert cache.find("b", version=7) is None
    cache.keep("a", Overview(), version=8)
    assert cache.find("a", version=8) == Overview()


def test_the_least_recently_used_are_forgotten_first() -> None:
    cache = CurveCache(max_points=5)
    cache.keep("a", Overview([(1, 1.0), (2, 2.0)]), version=1)
    cache.keep("b", Overview([(1, 1.0), (2, 2.0)]), version=1)
    assert cache.find("a", version=1) is not None
    cache.keep("c", Overview([(1, 1.0), (2, 2.0)]), version=1)
    assert [name for name in "abc" if cache.find(name, version=1) is not None] == ["a", "c"]
    cache.keep("d", Overview([(at, 0.0) for at in range(9)]), version=1)
    assert [name for name in "acd" if cache.find(name, version=1) is not None] == [], "larger than all there is"
