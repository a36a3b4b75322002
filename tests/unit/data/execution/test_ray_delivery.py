"""Rows that come through connections: proved, in order, once, and no more than there is room for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from trek.data.execution import ray_delivery
from trek.data.execution.ray_delivery import Delivery, Destination, Receiver, Room
from trek.errors import OutsideError


class Task:
    """What Ray gives for a task that was started."""

    def __init__(self) -> None:
        self.outcome: Future[bytes] = Future()

    def future(self) -> Future[bytes]:
        return self.outcome

    def answer(self, state: str, content: object) -> None:
        self.outcome.set_result(cloudpickle.dumps((state, content)))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver("127.0.0.1")
    yield receiver
    receiver.close()


@pytest.fixture
def task() -> Task:
    return Task()


@pytest.fixture
def expected(receiver: Receiver, task: Task) -> tuple[Delivery, Destination]:
    delivery, destination = receiver.expect(Room())
    delivery.watch(task)
    return delivery, destination


def _send(destination: Destination, batches: Iterator[pa.RecordBatch]) -> int:
    return destination.send(batches, give_way=Destination.wait_for_room)


def _batches(*values: int) -> Iterator[pa.RecordBatch]:
    return (pa.record_batch({"x": np.full(1000, value)}) for value in values)


def _wait_for(delivery: Delivery) -> None:
    changed = delivery.receiver.changed
    with changed:
        assert changed.wait_for(lambda: delivery.is_ready, timeout=20)


def _taken(delivery: Delivery) -> list[int]:
    taken = []
    while True:
        _wait_for(delivery)
        batch = delivery.take()
        if batch is None:
            return taken
        taken.append(batch.column("x")[0].as_py())


def test_rows_come_in_order(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    assert _send(destination, _batches(1, 2, 3)) == 3
    task.answer("done", 3)
    assert _taken(delivery) == [1, 2, 3]


def test_a_partition_may_have_no_rows(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    task.answer("done", _send(destination, _batches()))
    assert _taken(delivery) == []


def test_what_is_sent_again_is_not_given_again(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected

    def dies() -> Iterator[pa.RecordBatch]:
        yield from _batches(1, 2)
        _wait_for(delivery)
        raise MemoryError

    with pytest.raises(MemoryError):
        _send(destination, dies())
    task.answer("done", _send(destination, _batches(1, 2, 3)))
    assert _taken(delivery) == [1, 2, 3]


def test_a_connection_whose_node_says_nothing_any_more_is_replaced(
    expected: tuple[Delivery, Destination], task: Task
) -> None:
    delivery, destination = expected
    is_over = threading.Event()

    def sleeps() -> Iterator[pa.RecordBatch]:
        yield from _batches(1)
        is_over.wait()

    def send() -> None:
        with contextlib.suppress(ConnectionError):
            _send(destination, sleeps())

    silent = threading.Thread(target=send)
    silent.start()
    _wait_for(delivery)
    task.answer("done", _send(destination, _batches(1, 2)))
    assert _taken(delivery) == [1, 2]
    is_over.set()
    silent.join()


def test_rows_that_were_lost_on_the_way_are_an_error(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    _send(destination, _batches(1, 2))
    task.answer("done", 3)
    with pytest.raises(OutsideError, match="of 3 batches that a data task sent, 2 came"):
        _taken(delivery)


def test_the_error_of_a_task_follows_its_rows(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    _send(destination, _batches(1))
    task.answer("failed", ZeroDivisionError("by 0"))
    _wait_for(delivery)
    assert delivery.take() is not None
    _wait_for(delivery)
    with pytest.raises(ZeroDivisionError, match="by 0"):
        delivery.take()


def _large(num_batches: int) -> list[pa.RecordBatch]:
    """Of 8 MiB each: more than sockets hold."""
    return [pa.record_batch({"x": np.full(1 << 20, value)}) for value in range(num_batches)]


def test_no_more_rows_wait_here_than_there_is_room_for(
    expected: tuple[Delivery, Destination], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 20_000)
    delivery, destination = expected
    large = _large(8)
    sending = threading.Thread(target=lambda: task.answer("done", _send(destination, iter(large))))
    sending.start()
    for value in range(8):
        _wait_for(delivery)
        assert delivery.room.num_bytes <= 20_000 + large[0].nbytes
        assert value > 4 or not task.outcome.done(), "it waits for the reader"
        batch = delivery.take()
        assert batch is not None
        assert batch.column("x")[0].as_py() == value
    sending.join()
    _wait_for(delivery)
    assert delivery.take() is None
    assert delivery.room.num_bytes == 0


def test_a_task_that_cannot_send_gives_way_until_there_is_room(
    expected: tuple[Delivery, Destination], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 20_000)
    monkeypatch.setattr(ray_delivery, "_BUSY_S", 0.05)
    delivery, destination = expected
    has_given_way, goes_on = threading.Event(), threading.Event()

    def give_way(destination: Destination) -> None:
        has_given_way.set()
        destination.wait_for_room()
        goes_on.set()

    sending = threading.Thread(target=lambda: task.answer("done", destination.send(iter(_large(8)), give_way=give_way)))
    sending.start()
    assert has_given_way.wait(timeout=20)
    assert not goes_on.wait(timeout=0.2), "nothing was read"
    assert _taken(delivery) == list(range(8))
    assert goes_on.is_set()
    sending.join()


def test_passes_do_not_share_their_room(
    receiver: Receiver, expected: tuple[Delivery, Destination], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 16_000)
    full, its_destination = expected
    _send(its_destination, _batches(1, 2))
    with receiver.changed:
        assert receiver.changed.wait_for(lambda: full.room.num_bytes == 16_000, timeout=20)
    another, destination = receiver.expect(Room())
    another.watch(task := Task())
    task.answer("done", _send(destination, _batches(3, 4)))
    with receiver.changed:
        assert receiver.changed.wait_for(lambda: another.room.num_bytes == 16_000, timeout=20), "both wait here"
    assert _taken(another) == [3, 4]


def test_whoever_waits_for_room_is_told_when_the_rows_are_not_wanted(
    receiver: Receiver, expected: tuple[Delivery, Destination], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 20_000)
    monkeypatch.setattr("ray.cancel", lambda task: None)
    delivery, destination = expected

    def send() -> None:
        with contextlib.suppress(ConnectionError):
            _send(destination, iter(_large(8)))

    sending, waiting = threading.Thread(target=send), threading.Thread(target=destination.wait_for_room)
    sending.start()
    _wait_for(delivery)
    waiting.start()
    delivery.cancel()
    receiver.forget(delivery)
    waiting.join(timeout=20)
    assert not waiting.is_alive()
    sending.join()
    destination.wait_for_room()  # nobody expects it any more: at once


def test_a_task_that_is_not_wanted_any_more_ends(
    receiver: Receiver, expected: tuple[Delivery, Destination], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[object] = []
    monkeypatch.setattr("ray.cancel", cancelled.append)
    delivery, destination = expected

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield from _batches(1)

    ended = Future[int]()

    def send() -> None:
        try:
            ended.set_result(_send(destination, endless()))
        except ConnectionError as error:
            ended.set_exception(error)

    threading.Thread(target=send).start()
    _wait_for(delivery)
    delivery.cancel()
    receiver.forget(delivery)
    assert isinstance(ended.exception(timeout=20), ConnectionError)
    assert len(cancelled) == 1
    assert delivery.room.num_bytes == 0
    with pytest.raises(EOFError):
        _send(destination, _batches(1))


def test_strangers_are_refused(receiver: Receiver, expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    stranger = Destination(destination.host, destination.port, "another secret", destination.number)
    with pytest.raises(OutsideError, match="does not know its secret"):
        _send(stranger, _batches(666))
    with socket.create_connection((destination.host, destination.port)) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
        task.answer("done", _send(destination, _batches(1)))
    assert _taken(delivery) == [1]


def test_a_node_that_cannot_reach_the_reader_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_delivery, "_REACH_S", 0.05)
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.9")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(OutsideError, match=r"node 10\.0\.0\.9 of the Ray cluster cannot reach the process that reads"):
        _send(Destination("127.0.0.1", port, "secret", 0), _batches(1))
