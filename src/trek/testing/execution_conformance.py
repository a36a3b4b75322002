"""What every Executor must do, as tests: subclass `ExecutorConformance` and give it a fixture named `make_executor`.

class TestMyExecutor(ExecutorConformance):
    @pytest.fixture
    def make_executor(self) -> Callable[..., Executor]:
        return partial(MyExecutor, num_workers=2)
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trek.data.execution.base import Executor
from trek.data.execution.parts import Part, Readable
from trek.data.tensors import to_column, to_numpy
from trek.errors import InputError

Stream = Iterator[pa.RecordBatch]


class ExecutorConformance:
    """The contract of `trek.data.execution.base`, one promise a test."""

    num_spilling_batches = 1
    """How many batches of 800,000 bytes exceed the memory of an Executor with a limit of 100,000 bytes."""

    @pytest.fixture
    def make_executor(self) -> Callable[..., Executor]:
        """Override: a function that makes an Executor with two workers, taking `memory_limit_bytes`."""
        raise NotImplementedError

    @pytest.fixture
    def executor(self, make_executor: Callable[..., Executor]) -> Iterator[Executor]:
        """An Executor, closed after the test."""
        with make_executor() as executor:
            yield executor

    def test_what_is_put_can_be_got(self, executor: Executor) -> None:
        """put, get."""
        table = pa.table({"x": [1, 2, 3], "t": to_column(np.ones((3, 2, 2)), name="t"), "s": ["a", None, "c"]})
        assert executor.get(executor.put(table)).equals(table)

    def test_map_gives_a_part_for_each_partition_in_order(self, executor: Executor) -> None:
        """map keeps order, whichever worker is faster."""

        def label(index: int, batches: Stream) -> Stream:
            for batch in batches:
                yield pa.record_batch({"partition": [index] * batch.num_rows, "x": batch.column("x")})

        parts = executor.map(label, _parts(executor, [3, 0, 2, 1]))
        assert [part.num_rows for part in parts] == [3, 0, 2, 1]
        assert _rows(executor, parts, "partition") == [0, 0, 0, 2, 2, 3]
        assert _rows(executor, parts, "x") == [0, 1, 2, 0, 1, 0]

    def test_map_reads_several_inputs_side_by_side(self, executor: Executor) -> None:
        """A task gets the streams of its own partition of every input."""

        def count_both(index: int, left: Stream, right: Stream) -> Stream:
            yield pa.record_batch({"n": [sum(b.num_rows for b in left) * 10 + sum(b.num_rows for b in right)]})

        parts = executor.map(count_both, _parts(executor, [1, 2]), _parts(executor, [3, 4]))
        assert _rows(executor, parts, "n") == [13, 24]

    def test_exchange_sends_rows_where_the_split_says_in_order(self, executor: Executor) -> None:
        """exchange keeps the order of inputs within each target."""

        def by_parity(index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
            for batch in batches:
                values = batch.column("x").to_numpy()
                for target in (0, 1):
                    yield (
                        target,
                        pa.record_batch(
                            {"from": [index] * int((values % 2 == target).sum())} | {"x": values[values % 2 == target]}
                        ),
                    )

        parts = executor.exchange(by_parity, _parts(executor, [4, 3]), num_partitions=3)
        assert [_rows(executor, [part], "x") for part in parts] == [[0, 2, 0, 2], [1, 3, 1], []]
        assert _rows(executor, [parts[0]], "from") == [0, 0, 1, 1]

    def test_tensors_and_missing_values_survive_an_exchange(self, executor: Executor) -> None:
        """Any column type travels."""
        images = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
        table = pa.table({"t": to_column(images, name="t"), "s": ["a", None, "c", "d", None, "f"]})

        def halves(index: int, batches: Stream) -> Iterator[tuple[int, pa.RecordBatch]]:
            for batch in batches:
                yield 0, batch.slice(0, 3)
                yield 1, batch.slice(3)

        parts = executor.exchange(halves, [executor.put(table)], num_partitions=2)
        got = executor.get(parts[1])
        np.testing.assert_array_equal(to_numpy(got.column("t")), images[3:])
        assert got.column("s").to_pylist() == ["d", None, "f"]

    def test_functions_may_close_over_arrays(self, executor: Executor) -> None:
        """What a function holds goes with it, large or small."""
        weights = np.arange(100_000, dtype=np.float64)

        def weigh(index: int, batches: Stream) -> Stream:
            for batch in batches:
                yield pa.record_batch({"x": weights[batch.column("x").to_numpy()]})

        assert _rows(executor, executor.map(weigh, _parts(executor, [3])), "x") == [0.0, 1.0, 2.0]

    def test_a_failure_is_raised_as_it_was(self, executor: Executor) -> None:
        """The error of a function arrives with its type and message, and the executor keeps working."""

        def refuse(index: int, batches: Stream) -> Stream:
            if index == 1:
                raise InputError("partition 1 is bad")
            yield from batches

        with pytest.raises(InputError, match="partition 1 is bad"):
            executor.map(refuse, _parts(executor, [1, 1, 1]))
        assert _rows(executor, executor.map(_same, _parts(executor, [2])), "x") == [0, 1]

    def test_what_exceeds_the_memory_limit_spills_and_says_so(
        self, make_executor: Callable[..., Executor], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Spilled rows read back the same; a log line or stderr tells of it."""
        with make_executor(memory_limit_bytes=100_000) as executor:
            big = pa.concat_tables([pa.table({"x": np.arange(100_000)})] * self.num_spilling_batches)
            (part,) = executor.map(_doubled, [executor.put(big)])
            assert executor.num_spilled_bytes > 500_000
            total = sum(int(batch.column("x").to_numpy().sum()) for batch in part.batches())
            assert total == 2 * np.arange(100_000).sum() * self.num_spilling_batches
        assert any("memory limit" in record.message for record in caplog.records)

    def test_parts_no_longer_used_are_freed(self, make_executor: Callable[..., Executor]) -> None:
        """Memory comes back with the last reference, so a long chain of results does not spill."""
        with make_executor(memory_limit_bytes=3_000_000) as executor:
            for _ in range(8):
                part = executor.put(pa.table({"x": np.arange(100_000)}))
                (result,) = executor.map(_same, [part])
                assert result.num_rows == 100_000
                del part, result
                gc.collect()
            assert executor.num_spilled_bytes == 0

    def test_pieces_are_collected_in_order_computed_or_not(self, executor: Executor) -> None:
        """compute, collect and read: rows of Parts and of pieces that are still to be computed."""
        parts = _parts(executor, [3, 0, 2])
        pieces: list[Readable] = [
            _Scaled(parts[0], 10),
            parts[1],
            _Scaled(parts[1], 10),
            _Scaled(parts[2], -1),
            parts[2],
        ]
        expected = [[0, 10, 20], [], [], [0, -1], [0, 1]]
        assert executor.compute(parts) == parts, "taken as they are"
        computed = executor.compute(pieces)
        assert [computed[1], computed[4]] == [parts[1], parts[2]], "these, too"
        assert [_rows(executor, [part], "x") for part in computed] == expected
        for streams in (executor.collect(pieces), executor.read(pieces), executor.read(pieces, ahead=1)):
            assert [[x for batch in stream for x in batch.column("x").to_pylist()] for stream in streams] == expected

    def test_a_failure_while_rows_are_collected_is_raised_as_it_was(self, executor: Executor) -> None:
        """As for map; what comes before it may be read."""
        first, second = _parts(executor, [2, 2])
        pieces: list[Readable] = [first, _Scaled(second, None), *[_Scaled(first, 1)] * 6]
        for collect in (executor.collect, executor.read):
            with pytest.raises(InputError, match="no scale"):
                [batch for stream in collect(pieces) for batch in stream]
        assert [batch.num_rows for stream in executor.collect(pieces[2:]) for batch in stream] == [2] * 6

    def test_reading_may_stop_before_the_end(self, executor: Executor) -> None:
        """Nothing is left behind that would keep a worker busy."""
        (part,) = _parts(executor, [2])
        for _ in range(5):
            streams = executor.read([_Scaled(part, 3)] * 4)
            assert next(next(streams)).column("x").to_pylist() == [0, 3]
        assert _rows(executor, executor.map(_same, [part] * 4), "x") == [0, 1] * 4

    def test_a_chain_of_many_partitions_comes_to_an_end(self, executor: Executor) -> None:
        """More partitions than workers."""
        parts = executor.map(_doubled, _parts(executor, [2] * 20))
        assert _rows(executor, parts, "x") == [0, 2] * 20


@dataclass(frozen=True)
class _Scaled:
    """A piece that is still to be computed."""

    origin: Part
    scale: int | None

    def batches(self) -> Stream:
        if self.scale is None:
            raise InputError("no scale")
        return (pa.record_batch({"x": batch.column("x").to_numpy() * self.scale}) for batch in self.origin.batches())


def _same(index: int, batches: Stream) -> Stream:
    return batches


def _doubled(index: int, batches: Stream) -> Stream:
    for batch in batches:
        yield pa.record_batch({"x": batch.column("x").to_numpy() * 2})


def _parts(executor: Executor, sizes: list[int]) -> list[Part]:
    return [executor.put(pa.table({"x": np.arange(size)})) for size in sizes]


def _rows(executor: Executor, parts: list[Part], column: str) -> list[Any]:
    return [value for part in parts for batch in part.batches() for value in batch.column(column).to_pylist()]
