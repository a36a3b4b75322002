"""Files of every format, from this machine and behind URLs, a bounded number of bytes at a time."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import fsspec.asyn
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from fsspec.registry import _registry, known_implementations

import trek
from trek.data import Table
from trek.errors import DataUnavailable, InputError

_ROWS = pa.table({"value": pa.array(range(100)), "x": pa.array(np.arange(100) / 4)})


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in memory, empty before and after."""
    system = fsspec.filesystem("memory")
    yield system
    for path in system.find("/"):
        system.rm_file(path)


@pytest.fixture(scope="module")
def web_thread() -> None:
    """The thread on which fsspec makes its web requests: one for the process, which stays."""
    fsspec.asyn.get_loop()


@pytest.fixture
def web(web_thread: None, tmp_path: Path) -> Iterator[str]:
    """The address of a web server that serves `tmp_path`."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(sends_body=False)

        def do_GET(self) -> None:
            self.answer(sends_body=True)

        def answer(self, *, sends_body: bool) -> None:
            path = tmp_path / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            content, wanted = path.read_bytes(), re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(wanted[1]), min(int(wanted[2]), len(content) - 1)) if wanted else (0, len(content) - 1)
            self.send_response(206 if wanted else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            if sends_body:
                self.wfile.write(content[first : last + 1])

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def write_parquet(file: Any) -> None:
    pa.parquet.write_table(_ROWS, file)


def write_csv(file: Any) -> None:
    pa.csv.write_csv(_ROWS, file)


def write_tsv(file: Any) -> None:
    rows = [("value", "x"), *((row["value"], row["x"]) for row in _ROWS.to_pylist())]
    file.write("".join(f"{value}\t{x}\n" for value, x in rows).encode())


def write_json_lines(file: Any) -> None:
    file.write("".join(json.dumps(row) + "\n" for row in _ROWS.to_pylist()).encode())


def write_arrow(file: Any) -> None:
    with pa.ipc.new_file(file, _ROWS.schema) as writer:
        writer.write_table(_ROWS)


def write_npy(file: Any) -> None:
    np.save(file, np.arange(100))


def write_npz(file: Any) -> None:
    np.savez(file, value=np.arange(100))


def write_idx(file: Any) -> None:
    file.write(bytes([0, 0, 8, 1, 0, 0, 0, 100]) + bytes(range(100)))


def write_packed_csv(file: Any) -> None:
    with gzip.open(file, "wb") as packed:
        write_csv(packed)


WRITERS: dict[str, Callable[[Any], None]] = {
    "a.parquet": write_parquet,
    "a.csv": write_csv,
    "a.tsv": write_tsv,
    "a.jsonl": write_json_lines,
    "a.arrow": write_arrow,
    "a.npy": write_npy,
    "a.npz": write_npz,
    "a.idx": write_idx,
    "a.csv.gz": write_packed_csv,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_read_from_a_url(name: str, memory: Any) -> None:
    with memory.open(f"/there/{name}", "wb") as file:
        WRITERS[name](file)
    table = trek.data.open(f"memory://there/{name}")
    assert table.to_numpy()["value"].tolist() == list(range(100))
    assert trek.data.open("memory://there").num_rows == 100
    assert table.select("value").batches(10, shuffle=True).order.num_rows == 100


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_read_from_a_file_url(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        WRITERS[name](file)
    assert trek.data.open(f"file://{tmp_path}/{name}").to_numpy()["value"].tolist() == list(range(100))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.arrow", "a.idx"])
def test_files_are_read_from_a_web_server(name: str, tmp_path: Path, web: str) -> None:
    pytest.importorskip("aiohttp")
    with (tmp_path / name).open("wb") as file:
        WRITERS[name](file)
    table = trek.data.open(f"{web}/{name}")
    assert table.to_numpy()["value"].tolist() == list(range(100))


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
def test_a_table_persisted_to_a_url_is_opened_there(storage: Any, memory: Any) -> None:
    images = Table.of({"image": np.arange(80, dtype=np.uint8).reshape(20, 2, 2), "label": np.arange(20)})
    kept = images.partition(3).persist("memory://kept/images", storage=storage)
    again = trek.data.open("memory://kept/images")
    for table in (kept, again):
        assert (table.num_partitions, table.num_rows) == (3, 20)
        np.testing.assert_array_equal(table.to_numpy()["image"], images.to_numpy()["image"])
    assert sorted(
        row for (rows,) in again.batches(7, shuffle=True, columns=["label"]) for row in rows.tolist()
    ) == list(range(20))
    assert not Path("memory:").exists()


def test_an_equal_plan_is_not_sent_to_a_url_again_and_another_replaces_it(memory: Any) -> None:
    Table.of({"a": [1, 2, 3]}).persist("memory://kept/a")
    first = {path: memory.info(path)["created"] for path in memory.find("/kept/a")}
    Table.of({"a": [1, 2, 3]}).persist("memory://kept/a")
    assert {path: memory.info(path)["created"] for path in memory.find("/kept/a")} == first
    Table.of({"a": [9]}).persist("memory://kept/a")
    assert trek.data.open("memory://kept/a").to_numpy()["a"].tolist() == [9]
    assert len(memory.find("/kept/a")) == 2


def test_a_table_without_its_manifest_or_with_a_cut_shard_is_never_read_from_a_url(memory: Any) -> None:
    Table.of({"a": [1, 2, 3]}).persist("memory://kept/a")
    shard = next(path for path in memory.find("/kept/a") if path.endswith(".parquet"))
    memory.pipe_file(shard, memory.cat_file(shard)[:-1])
    with pytest.raises(DataUnavailable, match=r"shard-00000\.parquet has another size"):
        trek.data.open("memory://kept/a")
    assert Table.of({"a": [1, 2, 3]}).persist("memory://kept/a").num_rows == 3


def test_a_failure_sends_nothing_to_a_url(memory: Any) -> None:
    with pytest.raises(trek.errors.TrainingError, match="division"):
        Table.of({"a": [1, 0]}).map(lambda row: {"b": 1 // row["a"]}, rows=True).persist("memory://kept/b")
    assert not memory.exists("/kept/b")


def test_a_scheme_that_needs_a_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_implementations, "s3", {"class": "s3fs_gone.S3", "err": "Install s3fs"})
    monkeypatch.delitem(_registry, "s3", raising=False)
    with pytest.raises(InputError, match=re.escape("pip install 'trek-ml[s3]'): Install s3fs")):
        trek.data.open("s3://bucket/a.parquet")


def test_a_store_that_refuses_is_named_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, path: str) -> bool:
        raise LookupError("Unable to locate credentials")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.exists", refuse)
    with pytest.raises(DataUnavailable, match=r"'memory://a/b\.csv' cannot be opened: .*credentials\. Check the"):
        trek.data.open("memory://a/b.csv")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InputError, match="Protocol not known: nowhere"):
        trek.data.open("nowhere://a/b.parquet")


def test_a_missing_url_says_so(memory: Any) -> None:
    with pytest.raises(InputError, match=r"memory://there/no\.csv' does not exist"):
        trek.data.open("memory://there/no.csv")


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_json_lines_are_parsed_a_block_at_a_time(tmp_path: Path) -> None:
    rows = [{"id": number, "text": "x" * (number % 500)} for number in range(20_000)]
    path = write_lines(tmp_path / "a.jsonl", [json.dumps(row) for row in rows])
    table = trek.data.open(path)
    assert len(list(table)) > 3
    assert max(batch.nbytes for batch in table) < 2 << 20
    assert table.to_arrow().to_pylist() == rows


def test_a_line_longer_than_a_block_and_a_last_line_without_its_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"t": "a" * 3_000_000}) + "\n\n" + json.dumps({"t": "b"}))
    assert [len(text) for text in trek.data.open(path).to_numpy()["t"]] == [3_000_000, 1]


@pytest.mark.parametrize("num_bytes", [900_000, 1_100_000, 3_000_000])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "jsonl"])
def test_a_row_longer_than_a_block_is_read_wherever_it_is(suffix: str, num_bytes: int, tmp_path: Path) -> None:
    texts = ["a", "b" * num_bytes, "c" * num_bytes, "d"]
    for number in (0, 100_000):  # short rows before them
        rows = [*({"n": i, "t": "x" * 10} for i in range(number)), *({"n": 7, "t": text} for text in texts)]
        if suffix == "jsonl":
            content = "".join(json.dumps(row) + "\n" for row in rows)
        else:
            separator = "\t" if suffix == "tsv" else ","
            content = f"n{separator}t\n" + "".join(f"{row['n']}{separator}{row['t']}\n" for row in rows)
        with fsspec.open(str(tmp_path / f"{number}.{suffix}"), "wb", compression="infer") as file:
            file.write(content.encode())
        found = trek.data.open(tmp_path / f"{number}.{suffix}").to_arrow()
        assert found["t"].to_pylist() == [row["t"] for row in rows]
        assert found["n"].to_pylist() == [row["n"] for row in rows]


def test_keys_that_lines_leave_out_are_missing_values(tmp_path: Path) -> None:
    lines = [json.dumps({"a": 1, "b": "x"})] * 100_000 + [json.dumps({"b": "y"})]
    table = trek.data.open(write_lines(tmp_path / "a.jsonl", lines)).to_arrow()
    assert table.column("a").null_count == 1
    assert table.column_names == ["a", "b"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_type_that_the_first_block_does_not_show_can_be_told(suffix: str, tmp_path: Path) -> None:
    values = ["1"] * 600_000 + ["2.5"]
    lines = ["a", *values] if suffix == "csv" else [f'{{"a": {value}}}' for value in values]
    path = write_lines(tmp_path / f"a.{suffix}", lines)
    with pytest.raises(DataUnavailable, match=r"types=\{'x': 'float64'\}"):
        trek.data.open(path).to_arrow()
    told = trek.data.open(path, types={"a": "float64"})
    assert told.to_numpy()["a"].sum() == 600_002.5


def test_broken_json_names_the_file_and_the_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"a": 1}', '{"a": '])
    with pytest.raises(DataUnavailable, match=r"a\.jsonl, line 1 and on: JSON parse error"):
        trek.data.open(path).to_arrow()


def test_types_are_refused_where_files_know_theirs(tmp_path: Path) -> None:
    with (tmp_path / "a.parquet").open("wb") as file:
        write_parquet(file)
    with pytest.raises(InputError, match=r"types= is for text files"):
        trek.data.open(tmp_path / "a.parquet", types={"a": "float64"})
    with pytest.raises(InputError, match=r"column 'a': 'number' is not a valid type"):
        trek.data.open(write_lines(tmp_path / "a.csv", ["a", "1"]), types={"a": "number"})


@pytest.mark.parametrize(
    ("name", "cut"), [("a.npy", 8), ("a.idx", 3), ("a.parquet", 20), ("a.csv.gz", 9), ("a.arrow", 30)]
)
def test_a_truncated_file_is_named(name: str, cut: int, tmp_path: Path) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        WRITERS[name](file)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataUnavailable, match=re.escape(name)):
        trek.data.open(path).to_arrow()


@pytest.mark.parametrize("name", ["a.parquet", "a.npz"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    """A foreign traceback did not say which file it was."""
    path = tmp_path / name
    if name == "a.npz":
        np.savez(path, a=np.arange(3))
        path.write_bytes(path.read_bytes()[:-50])
    else:
        pa.parquet.write_table(pa.table({"a": np.arange(100_000)}), path)
        content = bytearray(path.read_bytes())
        content[5000] ^= 255
        content[5001] ^= 255
        path.write_bytes(content)
    with pytest.raises(DataUnavailable, match=rf"{re.escape(name)}(: a file is damaged| cannot be read): "):
        trek.data.open(path).to_arrow()
    with pytest.raises(DataUnavailable, match=rf"{re.escape(name)}"):
        trek.data.open(path).sort("a").to_arrow()


def test_the_columns_of_a_parquet_file_are_those_of_its_rows_and_need_none_of_them(tmp_path: Path) -> None:
    """The first row group was decoded to learn them."""
    kinds = [pa.int8(), pa.float16(), pa.string(), pa.large_string(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2)]
    kinds += [
        pa.list_(pa.int32()),
        pa.large_list(pa.string()),
        pa.struct([("a", pa.int8())]),
    ]
    kinds += [pa.dictionary(pa.int8(), pa.string()), pa.map_(pa.string(), pa.int8()), pa.date32(), pa.binary(3)]
    columns = {str(kind): pa.nulls(3, kind) for kind in kinds}
    # Not null: Arrow 25 writes such a column, and does not read it.
    columns["tensor"] = pa.array([[1, 2, 3, 4]] * 3, pa.list_(pa.uint8(), 4))
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table(columns).replace_schema_metadata({"who": "me"}), path)
    opened = trek.data.open(path)
    (batch,) = opened
    assert opened.schema.equals(batch.schema, check_metadata=True)
    (narrow,) = opened.select("tensor", "int8")
    assert opened.select("tensor", "int8").schema.equals(narrow.schema, check_metadata=True)
    path.write_bytes(b"PAR1" + bytes(400) + path.read_bytes()[404:])
    assert trek.data.open(path).schema.equals(batch.schema)


def test_columns_left_out_are_not_decoded(tmp_path: Path) -> None:
    with (tmp_path / "a.parquet").open("wb") as file:
        write_parquet(file)
    table = trek.data.open(tmp_path / "a.parquet").filter(trek.col("value") > 97).select("x")
    assert table.to_numpy()["x"].tolist() == [24.5, 24.75]
    kept = trek.data.open(tmp_path / "a.parquet").persist(tmp_path / "kept").select("x")
    (piece,) = kept._node.pieces(trek.data.execution.current_executor())
    assert next(iter(piece.batches())).schema.names == ["x"]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_without_a_column_that_others_have_is_named(suffix: str, tmp_path: Path) -> None:
    write = {"parquet": pa.parquet.write_table, "csv": pa.csv.write_csv}[suffix]
    write(pa.table({"a": [1], "b": [2]}), tmp_path / f"0.{suffix}")
    write(pa.table({"a": [1]}), tmp_path / f"1.{suffix}")
    table = trek.data.open(tmp_path)
    for wrong in (table, table.select("b")):
        with pytest.raises(InputError, match=rf"1\.{suffix}.*'b'"):
            wrong.to_arrow()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "jsonl", "arrow", "npz"])
@pytest.mark.parametrize("folders", [("", ""), ("day=1", "day=2")], ids=["flat", "hive"])
def test_a_column_that_only_a_later_file_has_is_refused_by_name(
    suffix: str, folders: tuple[str, str], tmp_path: Path
) -> None:
    for number, folder in enumerate(folders):
        path = tmp_path / folder / f"{number}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        rows = pa.table({"a": [1], "b": [2]} if number else {"a": [1]})
        if suffix == "parquet":
            pa.parquet.write_table(rows, path)
        elif suffix == "csv":
            pa.csv.write_csv(rows, path)
        elif suffix == "tsv":
            path.write_text("a\tb\n1\t2\n" if number else "a\n1\n")
        elif suffix == "jsonl":
            write_lines(path, [json.dumps(row) for row in rows.to_pylist()])
        elif suffix == "npz":
            np.savez(path, **{name: rows[name].to_numpy() for name in rows.column_names})
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
    table = trek.data.open(tmp_path)
    wrongs = (list, Table.to_arrow, lambda t: t.sort("a").to_arrow(), lambda t: t.filter(trek.col("a") > 0).to_arrow())
    for read in (*wrongs, lambda t: list(t.batches(1)), lambda t: t.map(lambda batch: batch).to_arrow()):
        with pytest.raises(InputError, match=rf"1\.{suffix} has a column 'b', which the files before it do not have"):
            read(table)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow"])
def test_columns_of_files_are_known_by_name_whatever_their_order(suffix: str, tmp_path: Path) -> None:
    """A scan took them by name, and reading in batches refused the same files."""
    for number, rows in enumerate((pa.table({"a": [1], "b": [5]}), pa.table({"b": [6], "a": [2]}))):
        path = tmp_path / f"{number}.{suffix}"
        if suffix == "parquet":
            pa.parquet.write_table(rows, path)
        elif suffix == "csv":
            pa.csv.write_csv(rows, path)
        elif suffix == "jsonl":
            write_lines(path, [json.dumps(row) for row in rows.to_pylist()])
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
    table = trek.data.open(tmp_path)
    expected = [{"a": 1, "b": 5}, {"a": 2, "b": 6}]
    assert table.to_arrow().to_pylist() == expected
    assert table.map(lambda batch: batch).to_arrow().to_pylist() == expected
    assert table.sort("a").to_arrow().to_pylist() == expected
    batches = trek.data.open(tmp_path).batches(1)
    assert [(a.item(), b.item()) for a, b in batches] == [(1, 5), (2, 6)]


def test_a_type_is_taken_from_a_later_file_whose_columns_have_another_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "0.jsonl", ['{"a": 1, "b": null}'])
    write_lines(tmp_path / "1.jsonl", ['{"b": 6, "a": 2}'])
    assert trek.data.open(tmp_path).to_arrow().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 6}]


def test_a_file_without_rows_still_has_its_columns(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    assert repr(trek.data.open(tmp_path / "a.parquet")) == "Table(x: int64)"
    assert trek.data.open(tmp_path / "a.parquet").select("x").to_arrow().num_rows == 0


def test_a_file_without_rows_leaves_the_types_to_those_that_have_some(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"x": pa.array([], pa.null())}), tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"x": [1, 2]}), tmp_path / "b.parquet")
    assert trek.data.open(tmp_path).to_numpy()["x"].tolist() == [1, 2]


def test_two_columns_of_one_name_are_refused_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(InputError, match=r"twice.csv has 2 columns called 'a'"):
        trek.data.open(tmp_path / "twice.csv").to_arrow()
