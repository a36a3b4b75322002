"""What every data Source must do, as tests: subclass `SourceConformance` and give it two fixtures.

class TestMySource(SourceConformance):
    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        return lambda: MySource.open("mydb://host/table")

    @pytest.fixture
    def expected(self) -> pa.Table:
        return pa.table({"x": [1, 2, 3]})

For a file format, subclass `FormatConformance` and give it a fixture `path`, a file that holds the rows of `expected`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from trek.data.plans.plan import PlanNode, Source
from trek.data.sources.files import open_files
from trek.data.table import Table


class SourceConformance:
    """The contract of `trek.data.plans.plan.Source`, one promise a test."""

    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        """Override: a function that makes the Source, always with the same content; at least two columns and rows."""
        raise NotImplementedError

    @pytest.fixture
    def expected(self) -> pa.Table:
        """Override: all its rows."""
        raise NotImplementedError

    def test_the_partitions_in_order_are_the_rows(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """read."""
        assert _rows(make_source()).equals(expected)

    def test_reading_again_gives_the_same(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """A partition is read from its beginning each time, also where an earlier reading was broken off."""
        source = make_source()
        next(iter(source.read(0)), None)
        assert _rows(source).equals(expected)
        assert _rows(source).equals(expected)

    def test_partitions_can_be_read_at_the_same_time(
        self, make_source: Callable[[], Source], expected: pa.Table
    ) -> None:
        """By threads."""
        source = make_source()
        with ThreadPoolExecutor(4) as pool:
            read = list(pool.map(lambda index: list(source.read(index)), range(source.num_partitions)))
        assert pa.Table.from_batches([batch for batches in read for batch in batches], expected.schema).equals(expected)

    def test_its_schema_is_that_of_its_rows(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """schema is None or right, before reading and after."""
        source = make_source()
        assert source.schema is None or source.schema.equals(expected.schema)
        _rows(source)
        assert source.schema is None or source.schema.equals(expected.schema)

    def test_the_number_of_rows_is_unknown_or_right(
        self, make_source: Callable[[], Source], expected: pa.Table
    ) -> None:
        """num_rows."""
        assert make_source().num_rows in (None, expected.num_rows)

    def test_the_whole_is_all_rows(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """whole is None or right."""
        whole = make_source().whole()
        assert whole is None or whole.combine_chunks().equals(expected)

    def test_leaving_columns_out_keeps_rows_and_order(
        self, make_source: Callable[[], Source], expected: pa.Table
    ) -> None:
        """narrowed is None or right."""
        names = list(reversed(expected.column_names))[:-1] or expected.column_names
        narrow = make_source().narrowed(names)
        assert narrow is None or _rows(narrow).equals(expected.select(names))

    def test_other_partitions_have_the_same_rows(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """split is None or right."""
        split = make_source().split(3)
        assert split is None or (split.num_partitions == 3 and _rows(split).equals(expected))

    def test_another_process_reads_the_same(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """It survives pickling, unless it says that it cannot leave this process."""
        source = make_source()
        if not source.is_here_alone:
            assert _rows(pickle.loads(pickle.dumps(source))).equals(expected)  # noqa: S301 - made here

    def test_the_same_content_has_the_same_fingerprint(self, make_source: Callable[[], Source]) -> None:
        """identity; results are kept by it."""
        one, other = make_source(), make_source()
        assert one.fingerprint() == other.fingerprint()
        _rows(one)
        assert one.fingerprint() == other.fingerprint(), "reading changes nothing"

    def test_it_is_described_in_one_line(self, make_source: Callable[[], Source]) -> None:
        """describe."""
        described = make_source().describe()
        assert described
        assert "\n" not in described

    def test_a_table_of_it_can_be_used(self, make_source: Callable[[], Source], expected: pa.Table) -> None:
        """All of it together."""
        name = expected.column_names[-1]
        table = Table(make_source()).select(name).partition(2)
        assert table.to_arrow().combine_chunks().equals(expected.select([name]))


class FormatConformance(SourceConformance):
    """The contract of `trek.data.sources.formats.base.FileFormat`, through files of the format."""

    @pytest.fixture
    def path(self) -> Path:
        """Override: a file with the suffix of the format that holds the rows of `expected`."""
        raise NotImplementedError

    @pytest.fixture
    def make_source(self, path: Path) -> Callable[[], Source]:
        """The file."""
        return lambda: open_files(str(path))

    def test_the_rows_are_counted_without_being_read(self, path: Path, expected: pa.Table) -> None:
        """count_rows, where the format has it."""
        source = open_files(str(path))
        if source.format.is_counted:
            with path.open("rb") as content:
                assert source.format.count_rows(content, url=str(path)) == expected.num_rows


def _rows(node: PlanNode) -> pa.Table:
    from trek.data.execution import current_executor

    batches = [batch for piece in node.pieces(current_executor()) for batch in piece.batches()]
    return pa.Table.from_batches(batches).combine_chunks()
