"""A state is read by many at a time, or changed by one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trek.ps.state_lock import StateLock


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_readers_read_at_the_same_time() -> None:
    lock, both = StateLock(), threading.Barrier(2, timeout=60)

    def read() -> None:
        with lock.reading():
            both.wait()

    threads = [in_thread(read), in_thread(read)]
    for thread in threads:
        thread.join()
    assert not both.broken


def test_a_writer_waits_for_readers_and_goes_before_later_ones() -> None:
    lock, order = StateLock(), []
    reading, done = threading.Event(), threading.Event()

    def read_first() -> None:
        with lock.reading():
            reading.set()
            done.wait(60)
            order.append("first reader")

    def write() -> None:
        with lock.writing():
            order.append("writer")

    def read_later() -> None:
        with lock.reading():
            order.append("second reader")

    threads = [in_thread(read_first)]
    reading.wait(60)
    threads.append(in_thread(write))
    while not lock._num_writers_waiting:
        threads[1].join(0.001)
    threads.append(in_thread(read_later))
    done.set()
    for thread in threads:
        thread.join()
    assert order == ["first reader", "writer", "second reader"]


def test_a_writer_that_waits_for_something_lets_others_go_on() -> None:
    lock, numbers = StateLock(), [0]
    found: list[bool] = []

    def wait() -> None:
        with lock.writing():
            found.append(lock.wait_for(lambda: numbers[0] == 3, 60))

    waiting = in_thread(wait)
    for _ in range(3):
        with lock.reading():
            seen = numbers[0]
        with lock.writing():
            numbers[0] = seen + 1
            lock.notify_all()
    waiting.join()
    assert found == [True]
    with lock.writing():
        assert not lock.wait_for(lambda: False, 0.0)
