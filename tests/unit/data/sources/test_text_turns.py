"""Looking at the types of a text file takes nothing from the reader that follows, however slow the file is."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from trek.data.sources.formats.base import Asked
from trek.data.sources.formats.separated import CsvFormat

NUM_ROWS = 30_000


class SlowFile(io.BytesIO):
    """A file that takes a moment for every read: Arrow's thread is still at it when another reader begins."""

    def __init__(self, content: bytes, *, is_seekable: bool) -> None:
        super().__init__(content)
        self._is_seekable = is_seekable

    def seekable(self) -> bool:
        return self._is_seekable

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        time.sleep(0.002)
        return found


@pytest.mark.parametrize(
    ("value", "is_seekable"),
    [(b"7", True), (b"7", False), (b"18446744073709551615", True), (b"18446744073709551615", False), (b"", True)],
    ids=["numbers", "numbers of a stream", "large numbers", "large numbers of a stream", "empty at first"],
)
def test_every_row_arrives_whatever_was_looked_at_before(value: bytes, is_seekable: bool) -> None:
    filler = b"x" * 400
    lines = [b"%d,%s,%s" % (number, value, filler) for number in range(NUM_ROWS - 1)]
    content = b"\n".join([b"number,odd,filler", *lines, b"%d,3,%s" % (NUM_ROWS - 1, filler)])
    for _ in range(3):
        file: Any = SlowFile(content, is_seekable=is_seekable)
        read = [batch.column(0).to_pylist() for batch in CsvFormat().read(file, url="slow.csv", asked=Asked())]
        assert [number for numbers in read for number in numbers] == list(range(NUM_ROWS))
