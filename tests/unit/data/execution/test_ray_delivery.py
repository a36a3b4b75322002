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
from trek.data.execution.ray_delivery import Delivery, Destination, Receiver
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
    delivery, destination = receiver.expect()
    delivery.watch(task)
    return delivery, destination


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
    assert destination.send(_batches(1, 2, 3)) == 3
    task.answer("done", 3)
    assert _taken(delivery) == [1, 2, 3]


def test_a_partition_may_have_no_rows(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    task.answer("done", destination.send(_batches()))
    assert _taken(delivery) == []


def test_what_is_sent_again_is_not_given_again(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected

    def dies() -> Iterator[pa.RecordBatch]:
        yield from _batches(1, 2)
        _wait_for(delivery)
        raise MemoryError

    with pytest.raises(MemoryError):
        destination.send(dies())
    task.answer("done", destination.send(_batches(1, 2, 3)))
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
            destination.send(sleeps())

    silent = threading.Thread(target=send)
    silent.start()
    _wait_for(delivery)
    task.answer("done", destination.send(_batches(1, 2)))
    assert _taken(delivery) == [1, 2]
    is_over.set()
    silent.join()


def test_rows_that_were_lost_on_the_way_are_an_error(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    destination.send(_batches(1, 2))
    task.answer("done", 3)
    with pytest.raises(OutsideError, match="of 3 batches that a data task sent, 2 came"):
        _taken(delivery)


def test_the_error_of_a_task_follows_its_rows(expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    destination.send(_batches(1))
    task.answer("failed", ZeroDivisionError("by 0"))
    _wait_for(delivery)
    assert delivery.take() is not None
    _wait_for(delivery)
    with pytest.raises(ZeroDivisionError, match="by 0"):
        delivery.take()


def test_no_more_rows_wait_here_than_there_is_room_for(
    receiver: Receiver, expected: tuple[Delivery, Destination], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_delivery, "AHEAD_BYTES", 20_000)
    delivery, destination = expected
    large = [pa.record_batch({"x": np.full(1 << 20, value)}) for value in range(8)]  # of 8 MiB: more than sockets hold
    sending = threading.Thread(target=lambda: task.answer("done", destination.send(iter(large))))
    sending.start()
    for value in range(8):
        _wait_for(delivery)
        assert receiver.num_bytes <= 20_000 + large[0].nbytes
        assert value > 4 or not task.outcome.done(), "it waits for the reader"
        batch = delivery.take()
        assert batch is not None
        assert batch.column("x")[0].as_py() == value
    sending.join()
    _wait_for(delivery)
    assert delivery.take() is None
    assert receiver.num_bytes == 0


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
            ended.set_result(destination.send(endless()))
        except ConnectionError as error:
            ended.set_exception(error)

    threading.Thread(target=send).start()
    _wait_for(delivery)
    delivery.cancel()
    receiver.forget(delivery)
    assert isinstance(ended.exception(timeout=20), ConnectionError)
    assert len(cancelled) == 1
    assert receiver.num_bytes == 0
    with pytest.raises(EOFError):
        destination.send(_batches(1))


def test_strangers_are_refused(receiver: Receiver, expected: tuple[Delivery, Destination], task: Task) -> None:
    delivery, destination = expected
    stranger = Destination(destination.host, destination.port, "another secret", destination.number)
    with pytest.raises(OutsideError, match="does not know its secret"):
        stranger.send(_batches(666))
    with socket.create_connection((destination.host, destination.port)) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
        task.answer("done", destination.send(_batches(1)))
    assert _taken(delivery) == [1]


def test_a_node_that_cannot_reach_the_reader_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_delivery, "_REACH_S", 0.05)
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.9")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(OutsideError, match=r"node 10\.0\.0\.9 of the Ray cluster cannot reach the process that reads"):
        Destination("127.0.0.1", port, "secret", 0).send(_batches(1))
