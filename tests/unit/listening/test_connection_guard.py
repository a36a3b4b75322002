"""Which connections are closed, and when."""

from __future__ import annotations

from types import SimpleNamespace

from trek.listening.connection_guard import HEAD_TIMEOUT_S, STALL_TIMEOUT_S, ConnectionGuard, Wait, to_close
from trek.testing.clock import FakeClock


def test_who_waited_too_long_is_closed_and_then_the_oldest() -> None:
    waits = {name: Wait("request", 0, float(since)) for name, since in (("a", 0), ("b", 6), ("c", 5), ("d", 7))}
    waits["slow"] = Wait("reader", 10, 0.0)
    assert to_close(waits, now_s=9.0, max_idle=4) == []
    assert to_close(waits, now_s=9.0, max_idle=2) == ["a", "c"]
    assert to_close(waits, now_s=HEAD_TIMEOUT_S, max_idle=4) == ["a"]
    assert to_close(waits, now_s=STALL_TIMEOUT_S, max_idle=4)[-1] == "slow"


class Cycle:
    """One request and its answer; equal to itself alone."""

    def __init__(self, is_complete: bool) -> None:
        self.response_complete = is_complete


class Connection:
    """As uvicorn's: a cycle per request, and a transport to abort."""

    def __init__(self) -> None:
        self.cycle: Cycle | None = None
        self.flow = SimpleNamespace(write_paused=False)
        self.transport = SimpleNamespace(abort=self._abort, get_write_buffer_size=lambda: self.num_unread)
        self.num_unread = 100
        self.is_open = True

    def _abort(self) -> None:
        self.is_open = False

    def answer(self, *, is_complete: bool = True) -> None:
        self.cycle = Cycle(is_complete)


def test_a_connection_that_is_used_again_and_again_stays() -> None:
    connection, clock = Connection(), FakeClock()
    guard = ConnectionGuard([connection], clock=clock)
    for _ in range(5):
        connection.answer()
        guard.sweep()
        clock.advance(0.7 * HEAD_TIMEOUT_S)
        guard.sweep()
    assert connection.is_open
    clock.advance(0.7 * HEAD_TIMEOUT_S)
    guard.sweep()
    assert not connection.is_open


def test_an_answer_may_take_as_long_as_it_is_read() -> None:
    connection, clock = Connection(), FakeClock()
    guard = ConnectionGuard([connection], clock=clock)
    connection.answer(is_complete=False)
    guard.sweep()
    clock.advance(100 * STALL_TIMEOUT_S)
    connection.flow.write_paused = True
    for size in (300, 200, 300):
        connection.num_unread = size
        guard.sweep()
        clock.advance(0.7 * STALL_TIMEOUT_S)
    assert connection.is_open
    guard.sweep()
    clock.advance(0.7 * STALL_TIMEOUT_S)
    guard.sweep()
    assert not connection.is_open
