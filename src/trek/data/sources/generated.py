"""Rows that a user's code makes: a function for each partition, or one iterable that is read once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pyarrow as pa

from trek.data.plans.conforming import HELD_ROWS, settled
from trek.data.plans.plan import Context, Source, Stream
from trek.data.plans.steps import batch_of_rows, call, to_batch
from trek.errors import InputError
from trek.fingerprints import source_name

_ROWS_AT_ONCE = 1024
_STREAM_HELD_ROWS = 1 << 14  # rows of a stream must come soon, even if a column of them is not known yet


class GeneratedSource(Source):
    """A function that is called once for each partition, every time the partition is read."""

    def __init__(self, function: Callable[[Context], Any], *, num_partitions: int, rows: bool) -> None:
        self.function = function
        self.rows = rows
        self._num_partitions = num_partitions

    @property
    def num_partitions(self) -> int:
        """As many as were asked for."""
        return self._num_partitions

    def describe(self) -> str:
        """One line for `explain`."""
        return f"generate {source_name(self.function)}"

    def identity(self) -> Any:
        """The function."""
        return (self.function, self.rows, self._num_partitions)

    def read(self, index: int) -> Stream:
        """What the function returns for a partition."""
        where = f"{self.describe()}, partition {index}"
        made = call(self.function, Context(index, self._num_partitions, self.describe()), where=where)
        return as_batches(made, rows=self.rows, where=where)


class StreamSource(Source):
    """An iterable of batches. What was read to learn the columns is not lost; reading twice is refused."""

    is_here_alone = True

    def __init__(self, batches: Iterable[Any], *, rows: bool) -> None:
        self._batches = as_batches(batches, rows=rows, where="stream", num_held_rows=_STREAM_HELD_ROWS)
        self._pending: deque[pa.RecordBatch] = deque()
        self._peeked: list[pa.RecordBatch] | None = None
        self._was_read = False

    @property
    def num_partitions(self) -> int:
        """One."""
        return 1

    @contextmanager
    def peeking(self) -> Iterator[None]:
        """Put what is read in this block back to the front."""
        was_read, self._was_read, self._peeked = self._was_read, False, []
        try:
            yield
        finally:
            self._pending.extendleft(reversed(self._peeked))
            self._was_read, self._peeked = was_read, None

    def describe(self) -> str:
        """One line for `explain`."""
        return "stream"

    def __getstate__(self) -> dict[str, Any]:
        raise InputError("a stream cannot be sent to another process. cache() it first, or use Table.generate().")

    def identity(self) -> Any:
        """Refused: the rows of a stream are not known in advance."""
        raise InputError(
            "a stream cannot be persisted, since its rows are not yet known. Use for_each(), or cache() it first."
        )

    def read(self, index: int) -> Stream:
        """The batches, once."""
        if self._was_read:
            raise InputError(
                "a stream can be read only once, and this one was. Make a new one, or cache() it before using it twice."
            )
        self._was_read = True
        return self._read()

    def _read(self) -> Stream:
        while True:
            batch = self._pending.popleft() if self._pending else next(self._batches, None)
            if batch is None:
                return
            if self._peeked is not None:
                self._peeked.append(batch)
            yield batch


def as_batches(made: Any, *, rows: bool, where: str, num_held_rows: int = HELD_ROWS) -> Iterator[pa.RecordBatch]:
    """What a user's code yields, as record batches of the same columns."""
    items = _in_runs(_iterate(made)) if rows else _iterate(made)
    batches = (batch_of_rows(item, where=where) if rows else to_batch(item, where=where) for item in items)
    return settled(((batch, "") for batch in batches), title=where, num_held_rows=num_held_rows)


def _iterate(made: Any) -> Iterator[Any]:
    if hasattr(made, "has_next") and hasattr(made, "next"):
        while made.has_next():
            yield made.next()
    else:
        yield from made


def _in_runs(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while run := list(islice(rows, _ROWS_AT_ONCE)):
        yield run
