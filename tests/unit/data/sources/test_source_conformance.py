"""Every source and file format keeps the contract, and those of other packages are found and used."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import trek
from trek.data import Table
from trek.data.plans.plan import Source
from trek.data.sources.files import open_files
from trek.data.sources.formats import FORMATS
from trek.data.sources.generated import GeneratedSource
from trek.data.sources.memory import MemorySource
from trek.data.sources.named import NamedSource
from trek.data.sources.url_source import SOURCES
from trek.errors import InputError
from trek.testing.plugins import plugin_package
from trek.testing.source_conformance import FormatConformance, SourceConformance

ROWS = pa.table({"x": np.arange(10_000), "text": [f"row {i}" for i in range(10_000)]})
ARRAY = np.arange(60, dtype=np.float32).reshape(30, 2)


class _OfRows(SourceConformance):
    @pytest.fixture
    def expected(self) -> pa.Table:
        return ROWS


class TestMemory(_OfRows):
    """Rows in memory."""

    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        return lambda: MemorySource(ROWS, num_partitions=3)


class TestGenerated(_OfRows):
    """Rows that a function makes."""

    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        return lambda: GeneratedSource(make_rows, num_partitions=2, rows=False)


def make_rows(context: object) -> Iterator[dict[str, np.ndarray]]:
    start = 5000 * context.index  # type: ignore[attr-defined]
    part = ROWS.slice(start, 5000)
    yield {"x": part.column("x").to_numpy(), "text": np.array(part.column("text").to_pylist())}


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
class TestPersisted(_OfRows):
    """Rows in a folder that persist() wrote."""

    @pytest.fixture
    def make_source(self, tmp_path: Path, storage: str) -> Callable[[], Source]:
        return lambda: Table.of(ROWS, num_partitions=2).persist(tmp_path / "kept", storage=storage)._node  # type: ignore[return-value, arg-type]


class TestRemote(_OfRows):
    """Rows behind a URL that persist() wrote."""

    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        url = f"memory://{uuid4()}"
        return lambda: Table.of(ROWS, num_partitions=2).persist(url)._node  # type: ignore[return-value]


class TestShared(_OfRows):
    """Rows in shared memory."""

    @pytest.fixture
    def make_source(self) -> Iterator[Callable[[], Source]]:
        with Table.of(ROWS).share() as handle:
            yield lambda: handle.open()._node  # type: ignore[return-value]


class TestNamed(SourceConformance):
    """A named data set."""

    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        return lambda: NamedSource.open("digits", split="test")

    @pytest.fixture
    def expected(self) -> pa.Table:
        return trek.data.open("digits", split="test").to_arrow().combine_chunks()


def _write(path: Path) -> pa.Table:
    """Writes a file of the format that its suffix names; gives the rows in it."""
    suffixes = path.name.split(".", 1)[1]
    if suffixes == "parquet":
        pq.write_table(ROWS, path, row_group_size=3000)
    elif suffixes == "csv":
        csv.write_csv(ROWS, path)
    elif suffixes == "tsv":
        path.write_text("x\ttext\n" + "".join(f"{row['x']}\t{row['text']}\n" for row in ROWS.to_pylist()))
    elif suffixes == "jsonl.gz":
        path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in ROWS.to_pylist()).encode()))
    elif suffixes == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ROWS.schema) as writer:
            writer.write_table(ROWS, max_chunksize=4000)
    else:
        return _write_array(path, suffixes)
    return ROWS


def _write_array(path: Path, suffix: str) -> pa.Table:
    if suffix == "npz":
        np.savez(path, x=np.arange(5), y=np.ones(5))
        return pa.table({"x": np.arange(5), "y": np.ones(5)})
    if suffix == "npy":
        np.save(path, ARRAY)
    else:
        path.write_bytes(b"\0\0\x0d\x02" + np.array(ARRAY.shape, ">u4").tobytes() + ARRAY.astype(">f4").tobytes())
    return Table.of({"value": ARRAY}).to_arrow()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "jsonl.gz", "arrow", "npz", "npy", "idx"])
class TestFormats(FormatConformance):
    """A file of each format."""

    @pytest.fixture
    def path(self, tmp_path: Path, suffix: str) -> Path:
        return tmp_path / f"rows.{suffix}"

    @pytest.fixture(autouse=True)
    def expected(self, path: Path) -> pa.Table:
        return _write(path).combine_chunks()


class Careless(MemorySource):
    """Is emptied by reading, counts wrongly, and is another one each time it is asked."""

    def read(self, index: int) -> Iterator[pa.RecordBatch]:
        batches = list(super().read(index))
        self._parts, self.table = None, self.table.slice(0, 5)
        return iter(batches)

    @property
    def num_rows(self) -> int:
        return 7

    def identity(self) -> object:
        return str(uuid4())


@pytest.mark.parametrize(
    "test",
    [
        "test_reading_again_gives_the_same",
        "test_the_number_of_rows_is_unknown_or_right",
        "test_the_same_content_has_the_same_fingerprint",
    ],
)
def test_a_source_that_breaks_the_contract_fails_the_suite(test: str) -> None:
    arguments = [] if "fingerprint" in test else [ROWS]
    with pytest.raises(AssertionError):
        getattr(SourceConformance(), test)(lambda: Careless(ROWS), *arguments)


NUMBERS_SOURCE = """
import numpy as np
import pyarrow as pa

from trek.data.sources.url_source import UrlSource
from trek.errors import InputError


class NumbersSource(UrlSource):
    def __init__(self, count):
        self.count = count

    @classmethod
    def open(cls, url):
        count = url.removeprefix("numbers://")
        if not count.isdigit():
            raise InputError(f"{url!r} is not a valid address. Write numbers:// and a number.")
        return cls(int(count))

    num_partitions = 2

    def describe(self):
        return f"{self.count} numbers"

    def identity(self):
        return ("numbers", self.count)

    def read(self, index):
        half = self.count // 2
        x = np.arange(half) if index == 0 else np.arange(half, self.count)
        yield pa.record_batch({"x": x, "square": x * x})
"""


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[None]:
    points = {"trek.sources": {"numbers": "numbers_source:NumbersSource"}}
    with plugin_package(
        tmp_path / "p", module="numbers_source", source=NUMBERS_SOURCE, entry_points=points, refresh=SOURCES
    ):
        yield


@pytest.mark.usefixtures("numbers")
class TestAPluginSource(SourceConformance):
    """A source of another package, found by the scheme of its URLs."""

    @pytest.fixture
    def make_source(self) -> Callable[[], Source]:
        return lambda: trek.data.open("numbers://9")._node  # type: ignore[return-value]

    @pytest.fixture
    def expected(self) -> pa.Table:
        return pa.table({"x": np.arange(9), "square": np.arange(9) ** 2})


@pytest.mark.usefixtures("numbers")
def test_a_plugin_source_refuses_urls_that_are_wrong() -> None:
    with pytest.raises(InputError, match="not a valid address"):
        trek.data.open("numbers://many")


LINES_FORMAT = """
import pyarrow as pa

from trek.data.sources.formats import FileFormat


class LinesFormat(FileFormat):
    def read(self, content, *, url, asked):
        for line in content:
            text = line.decode().rstrip("\\n")
            yield pa.record_batch({"length": [len(text)], "line": [text]})
"""


class TestAPluginFormat(FormatConformance):
    """A format of another package, found by the suffix of files."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Iterator[Path]:
        points = {"trek.formats": {"lines": "lines_format:LinesFormat"}}
        (tmp_path / "a.lines").write_text("one\nthree\n")
        with plugin_package(
            tmp_path / "p", module="lines_format", source=LINES_FORMAT, entry_points=points, refresh=FORMATS
        ):
            yield tmp_path / "a.lines"

    @pytest.fixture
    def expected(self) -> pa.Table:
        return pa.table({"length": [3, 5], "line": ["one", "three"]})


def test_an_unknown_suffix_is_refused_with_the_formats_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.lines").write_text("one\n")
    with pytest.raises(InputError, match=r"holds \.lines; expected .* one of these formats: \.arrow, \.csv"):
        open_files(str(tmp_path / "a.lines"))
