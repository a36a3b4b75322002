"""The nodes of an engine, followed as they come and go."""

from __future__ import annotations

from typing import Any

from trek.control.trials.cluster_view import REFRESH_S, ClusterView
from trek.engines import Node
from trek.errors import OutsideError
from trek.testing.clock import FakeClock


class _Engine:
    name = "fake"
    can_grow = True

    def __init__(self) -> None:
        self.found: list[Node] | None = [Node("a", "10.0.0.1", 2, id="1")]

    def nodes(self) -> list[Node]:
        if self.found is None:
            raise OutsideError("no cluster")
        return self.found


def _view(engine: Any, clock: FakeClock, slots: int | None = None) -> ClusterView:
    return ClusterView(engine, slots=slots, clock=clock)


def test_slots_follow_the_nodes_and_stay_while_these_are_not_known() -> None:
    engine, clock = _Engine(), FakeClock()
    view = _view(engine, clock)
    assert (view.slots, view.has_gpus) == (2, False)
    engine.found = [Node("a", "10.0.0.1", 2, id="1"), Node("b", "10.0.0.2", 4, 4, id="2")]
    view.refresh()
    assert view.slots == 2, "it is not asked at every tick"
    clock.advance(REFRESH_S)
    view.refresh()
    assert (view.slots, view.has_gpus) == (6, True)
    engine.found = None
    clock.advance(REFRESH_S)
    view.refresh()
    assert view.slots == 6


def test_a_fixed_number_of_slots_stays() -> None:
    fixed = _view(_Engine(), FakeClock(), slots=5)
    assert (fixed.slots, fixed.can_grow) == (5, False)
    assert _view(_Engine(), FakeClock()).can_grow


def test_trials_are_shown_where_they_have_processes() -> None:
    class _Gang:
        def __init__(self, node: str) -> None:
            self.used_nodes = {node}

    engine = _Engine()
    engine.found = [Node("a", "10.0.0.1", 2, id="1"), Node("a", "10.0.0.2", 2, id="2")]
    gangs: Any = {7: _Gang("2"), 8: _Gang("2")}
    assert [one.trials for one in _view(engine, FakeClock()).nodes(gangs)] == [(), (7, 8)]
