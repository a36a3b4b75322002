"""Partitions read in order while tasks of a Ray cluster compute them and the ones that follow."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from trek.data.execution.base import Stream
from trek.data.execution.parts import Part, Readable
from trek.data.execution.ray_delivery import Delivery, Receiver, Room

Begin = Callable[[Readable, int, Room], Delivery]
"""`begin(piece, worker, room)`: have a task compute a piece and deliver its rows."""


class Reading:
    """One pass over some pieces. At most `num_workers` tasks run at a time, for at most `ahead` unread pieces."""

    def __init__(
        self, pieces: Sequence[Readable], begin: Begin, receiver: Receiver, *, num_workers: int, ahead: int | None
    ) -> None:
        self._pieces = pieces
        self._begin = begin
        self._receiver = receiver
        self._ahead = ahead or len(pieces)
        self._room = Room()
        self._num_begun = 0
        self._unread: deque[Part | Delivery] = deque()
        self._running: dict[Delivery, int] = {}
        self._free = list(range(num_workers))

    def streams(self) -> Iterator[Stream]:
        """The rows of each piece."""
        try:
            for _ in self._pieces:
                self._wait_for(lambda: bool(self._unread))
                piece = self._unread[0]
                yield piece.batches() if isinstance(piece, Part) else self._batches(piece)
                self._drop(self._unread.popleft())
        finally:
            self._cancel()

    def _batches(self, delivery: Delivery) -> Stream:
        try:
            self._wait_for(lambda: delivery.is_ready)
            while (batch := delivery.take()) is not None:
                yield batch
                self._wait_for(lambda: delivery.is_ready)
        except Exception:
            self._cancel()  # now, since whoever handles the error may keep the one who reads alive
            with self._receiver.changed:
                self._receiver.changed.wait_for(lambda: all(one.is_over for one in self._running))
            raise

    def _wait_for(self, is_true: Callable[[], bool]) -> None:
        """Begin what can be begun until something is true."""
        while True:
            self._begin_more()
            if is_true():
                return
            with self._receiver.changed:
                self._receiver.changed.wait_for(lambda: is_true() or self._may_begin)

    @property
    def _may_begin(self) -> bool:
        """Whether there is a worker, and room, for the next piece."""
        if self._num_begun == len(self._pieces) or len(self._unread) >= self._ahead:
            return False
        return bool(self._free) or any(delivery.is_over for delivery in self._running)

    def _begin_more(self) -> None:
        while self._may_begin:
            for delivery in [one for one in self._running if one.is_over]:
                heapq.heappush(self._free, self._running.pop(delivery))
            piece = self._pieces[self._num_begun]
            if isinstance(piece, Part):
                self._unread.append(piece)
            else:
                worker = heapq.heappop(self._free)
                delivery = self._begin(piece, worker, self._room)
                self._running[delivery] = worker
                self._unread.append(delivery)
            self._num_begun += 1

    def _cancel(self) -> None:
        """End the tasks whose rows nobody will read."""
        self._num_begun = len(self._pieces)
        while self._unread:
            self._drop(self._unread.popleft())

    def _drop(self, piece: Part | Delivery) -> None:
        if isinstance(piece, Delivery):
            piece.cancel()
            self._receiver.forget(piece)
