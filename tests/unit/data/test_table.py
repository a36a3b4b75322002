"""Tables: operations are lazy, batch-wise and typed; mistakes name the place."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import trek
from trek.data import Table
from trek.data.execution import running_on
from trek.data.execution.threads import ThreadExecutor
from trek.errors import InputError, TrainingError


@pytest.fixture
def table() -> Table:
    return Table.of({"x": np.arange(10), "image": np.arange(40, dtype=np.uint8).reshape(10, 2, 2)})


def test_a_table_of_arrays_shares_their_memory() -> None:
    images = np.zeros((4, 2, 2), np.uint8)
    assert Table.of({"image": images}).to_torch()["image"].data_ptr() == images.ctypes.data


@pytest.mark.parametrize(
    "data",
    [
        {"a": [1, 2], "b": ["x", "y"]},
        [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
        pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        pa.table({"a": [1, 2], "b": ["x", "y"]}),
        pa.record_batch({"a": [1, 2], "b": ["x", "y"]}),
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_come_from_many_kinds_of_memory(data: Any) -> None:
    table = Table.of(data)
    assert table.to_numpy()["a"].tolist() == [1, 2]
    assert table.to_numpy()["b"].tolist() == ["x", "y"]


def test_nothing_runs_before_an_action(table: Table) -> None:
    calls = []
    mapped = table.map(lambda batch: calls.append(1) or batch)
    assert calls == []
    mapped.to_arrow()
    assert calls == [1]


def test_map_sees_arrays_of_a_batch(table: Table) -> None:
    mapped = table.map(lambda batch: {"y": batch["x"] * 2, "pixels": batch["image"].astype(np.float32).sum((1, 2))})
    assert mapped.to_numpy()["y"].tolist() == list(range(0, 20, 2))
    assert mapped.schema.field("pixels").type == pa.float32()


def test_map_by_rows_sees_one_row(table: Table) -> None:
    mapped = table.map(lambda row: {"y": row["x"] + 1, "corner": row["image"][0, 0]}, rows=True)
    assert mapped.to_numpy()["y"].tolist() == list(range(1, 11))
    assert mapped.to_numpy()["corner"].tolist() == list(range(0, 40, 4))


def test_map_in_arrow_sees_a_record_batch(table: Table) -> None:
    assert table.map(lambda batch: batch.slice(0, 3), arrow=True).num_rows == 3


def test_filter_by_expression_and_by_function(table: Table) -> None:
    assert table.filter(trek.col("x") < 3).to_numpy()["x"].tolist() == [0, 1, 2]
    assert table.filter(lambda batch: batch["x"] % 5 == 0).to_numpy()["x"].tolist() == [0, 5]
    np.testing.assert_array_equal(table.filter(trek.col("x") == 9).to_numpy()["image"], [[[36, 37], [38, 39]]])


def test_flat_map_gives_any_number_of_rows(table: Table) -> None:
    doubled = table.flat_map(lambda row: [{"x": row["x"]}] * (row["x"] % 3))
    assert doubled.to_numpy()["x"].tolist() == [1, 2, 2, 4, 5, 5, 7, 8, 8]


def test_columns_are_chosen_left_out_renamed_and_computed(table: Table) -> None:
    assert table.select("image", "x").columns == ["image", "x"]
    assert table.drop("image").columns == ["x"]
    assert table.rename({"x": "index"}).columns == ["index", "image"]
    assert table.with_columns(half=trek.col("x") / 2).to_numpy()["half"][:3].tolist() == [0, 0.5, 1]


def test_partition_keeps_order_and_evens_out(table: Table) -> None:
    parts = table.filter(trek.col("x") != 4).partition(4)
    assert parts.num_partitions == 4
    assert parts.to_numpy()["x"].tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    sizes = parts.compute(lambda batches, context: {"n": [sum(len(b["x"]) for b in batches)]}).to_numpy()["n"]
    assert sorted(sizes.tolist()) == [2, 2, 2, 3]


def test_more_partitions_than_rows_leaves_some_empty() -> None:
    table = Table.of({"x": [1, 2]}).partition(5).map(lambda batch: {"y": batch["x"]})
    assert table.to_numpy()["y"].tolist() == [1, 2]


def test_compute_knows_where_it_runs(table: Table) -> None:
    def where(batches: Any, context: Any) -> Any:
        yield {"index": [context.index], "of": [context.parallelism], "rows": [sum(len(b["x"]) for b in batches)]}

    columns = table.partition(3).compute(where).to_numpy()
    assert columns["index"].tolist() == [0, 1, 2]
    assert columns["of"].tolist() == [3, 3, 3]
    assert columns["rows"].sum() == 10


def test_compute_reads_a_side_input(table: Table) -> None:
    centres = Table.of({"c": [100, 200]})

    def shift(batches: Any, context: Any) -> Any:
        for batch in batches:
            yield {"x": batch["x"] + context.inputs["centres"]["c"].sum()}

    assert table.compute(shift, centres=centres).to_numpy()["x"][0] == 300


def test_columns_learnt_by_running_are_learnt_once(table: Table) -> None:
    calls: list[int] = []
    mapped = table.map(lambda batch: calls.append(1) or batch)
    narrowed = mapped.filter(trek.col("x") < 5).select("x").filter(trek.col("x") > 1)
    assert narrowed.columns == ["x"]
    assert len(calls) == 1


def test_one_partition_is_worked_on_by_all_workers_when_it_is_cut_anyway() -> None:
    table = Table.of({"x": np.arange(1000)}).map(
        lambda batch: {"x": batch["x"], "n": np.full(len(batch["x"]), len(batch["x"]))}
    )
    with running_on(ThreadExecutor(2)):
        columns = table.filter(trek.col("x") < 900).partition(3).to_numpy()
    assert columns["x"].tolist() == list(range(900))
    assert set(columns["n"].tolist()) == {500}


def test_numbers_a_model_cannot_take_are_refused_by_column_and_row() -> None:
    table = Table.of({"a": np.arange(6.0), "b": np.array([0, 1, 2, np.nan, 4, np.inf])}, num_partitions=2)
    assert table.require_finite("a").num_rows == 6
    with pytest.raises(InputError, match=r"rows 0 to 2 of partition 1: column 'b' .* in 2 rows, first at row 0"):
        table.require_finite().to_arrow()


def test_tables_travel_to_other_processes_as_plans(tmp_path: Path, table: Table) -> None:
    kept = table.persist(tmp_path / "kept")
    for source in (table.partition(2), kept, trek.data.open("digits"), table.cache(), table.sort("x")):
        rows = source.num_rows
        list(source)
        travelled = pickle.loads(cloudpickle.dumps(source.select(source.columns[0])))
        assert travelled.num_rows == rows
    with pytest.raises(InputError, match="cannot be sent"):
        pickle.dumps(Table.stream([{"x": [1]}]))


def test_union_puts_rows_behind_each_other(table: Table) -> None:
    both = table.union(table)
    assert (both.num_rows, both.num_partitions) == (20, 2)
    with pytest.raises(InputError, match="equal columns"):
        table.union(table.drop("x"))


def test_rows_count_without_being_computed_where_they_can(table: Table) -> None:
    assert len(table.select("x")) == 10
    assert len(table.filter(trek.col("x") < 4)) == 4


def test_explain_prints_the_plan_from_the_end(table: Table) -> None:
    text = table.filter(trek.col("x") < 3).partition(2).explain()
    assert text.splitlines() == [
        "partition into 2  [2 partitions]",
        "  filter (col('x') < 3)  [1 partition]",
        "    memory  [1 partition, 10 rows]",
    ]


def test_show_prints_the_first_rows(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    table.show(2)
    assert capsys.readouterr().out.splitlines()[1].split() == ["0", "uint8[2,", "2]", "mean", "1.5"]


def test_describe_gives_figures_for_numbers_tensors_and_texts() -> None:
    table = Table.of({"n": [1.0, 3.0, None], "t": ["a", "b", "a"], "i": np.array([[0, 2], [4, 6], [8, 10]])})
    figures = table.partition(2).describe()
    assert figures.loc["n", ["count", "missing", "min", "max", "mean", "std"]].tolist() == [3, 1, 1, 3, 2, 2**0.5]
    assert figures.loc["t", "distinct"] == 2
    assert figures.loc["i", ["min", "max", "mean"]].tolist() == [0, 10, 5]


def test_pandas_gets_tensors_as_cells(table: Table) -> None:
    frame = table.to_pandas()
    assert frame["x"].tolist() == list(range(10))
    assert frame["image"][1].tolist() == [[4, 5], [6, 7]]


def test_a_failing_function_names_the_place_and_keeps_its_own_traceback() -> None:
    def broken(batch: Any) -> Any:
        raise ZeroDivisionError("no")

    with pytest.raises(TrainingError, match=r"map broken, rows 0 to 4 of partition 1: ZeroDivisionError: no") as caught:
        Table.of({"x": np.arange(10)}, num_partitions=2).filter(trek.col("x") > 4).map(broken).to_arrow()
    assert "in broken" in caught.value.traceback_text
    assert "steps.py" not in caught.value.traceback_text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: {"a": batch["x"], "b": batch["x"][:2]}, "different lengths"),
        (lambda batch: [1, 2], "returned a list"),
        (lambda batch: {"a": [np.zeros(1), np.zeros(2)]}, "'a' is ragged: row 1"),
        (lambda batch: {"a": [1, "x"]}, "'a' holds values of different types"),
    ],
)
def test_wrong_results_of_a_function_are_one_error(function: Any, message: str, table: Table) -> None:
    with pytest.raises(InputError, match=f"rows 0 to 9 of partition 0: .*{message}"):
        table.map(function).to_arrow()


def test_a_type_that_changes_between_batches_names_column_and_rows() -> None:
    def wobbling(batch: Any) -> Any:
        return {"y": batch["x"].astype(np.int64 if batch["x"][0] == 0 else np.float64)}

    with pytest.raises(
        InputError, match=r"rows 8192 to 9999 of partition 0: expected type int64 for column 'y', as before, got double"
    ):
        Table.of({"x": np.arange(10_000)}).map(wobbling).to_arrow()


def test_rows_with_other_keys_are_refused(table: Table) -> None:
    with pytest.raises(InputError, match="row 1 has columns"):
        table.map(lambda row: {"a": 1} if row["x"] == 0 else {"b": 1}, rows=True).to_arrow()


@pytest.mark.parametrize("operation", ["select", "drop"])
def test_an_unknown_column_is_refused_when_named(operation: str, table: Table) -> None:
    with pytest.raises(InputError, match=r"'y' does not exist\. There are: x, image"):
        getattr(table, operation)("y")


def test_an_unknown_column_in_a_filter_is_refused_when_named(table: Table) -> None:
    with pytest.raises(InputError, match="'y' does not exist"):
        table.filter(trek.col("y") < 1)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="different lengths"):
        Table.of({"a": [1], "b": [1, 2]})


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InputError, match="cannot make a Table from int"):
        Table.of(3)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow", "npz"])
def test_files_and_folders_of_each_format_are_read(suffix: str, tmp_path: Path) -> None:
    for number in range(2):
        write_file(tmp_path / f"part-{number}.{suffix}", pa.table({"a": [number, 10 + number], "b": [0.5, 1.5]}))
    table = trek.data.open(tmp_path)
    assert table.num_partitions == 2
    assert table.to_numpy()["a"].tolist() == [0, 10, 1, 11]
    assert trek.data.open(tmp_path / f"part-1.{suffix}").to_numpy()["a"].tolist() == [1, 11]


def test_an_fsspec_url_is_read(tmp_path: Path) -> None:
    write_file(tmp_path / "a.csv", pa.table({"a": [1, 2]}))
    assert trek.data.open(f"file://{tmp_path}/a.csv").num_rows == 2


def test_idx_files_are_read(shared_data: Path) -> None:
    table = trek.data.open(shared_data / "mnist" / "t10k-labels-idx1-ubyte.gz")
    assert table.to_numpy()["value"][:3].tolist() == [7, 2, 1]


def test_shards_whose_columns_differ_name_the_file(tmp_path: Path) -> None:
    write_file(tmp_path / "a.parquet", pa.table({"a": [1]}))
    write_file(tmp_path / "b.parquet", pa.table({"a": ["x"]}))
    with pytest.raises(
        InputError, match=r"b\.parquet, rows 0 to 0: expected type int64 for column 'a', as before, got string"
    ):
        trek.data.open(tmp_path).to_arrow()


@pytest.mark.parametrize("address", ["./rows.parquet", "rows.parqet", "deep/rows.csv", Path("rows"), ["rows.csv"]])
def test_a_missing_file_is_named_by_its_absolute_path(
    address: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = address[0] if isinstance(address, list) else address
    with pytest.raises(InputError) as caught:
        trek.data.open(address)
    assert str(caught.value) == f"the file or folder '{tmp_path / name}' does not exist. Check the path."


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "the address of the data is empty"),
        (["rows.csv", " "], "the address of the data is empty"),
        ("memory://", "'memory://' names a store, but nothing in it"),
    ],
)
def test_an_address_that_names_nothing_is_refused(
    address: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        trek.data.open(address)


def test_a_word_that_is_neither_a_data_set_nor_a_path_offers_the_data_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"data set 'minst' does not exist\. Did you mean 'mnist'"):
        trek.data.open("minst")


def test_a_name_that_is_nothing_offers_the_data_sets() -> None:
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        trek.data.open("mnis")


def test_a_folder_of_mixed_files_is_refused(tmp_path: Path) -> None:
    write_file(tmp_path / "a.parquet", pa.table({"a": [1]}))
    write_file(tmp_path / "b.csv", pa.table({"a": [1]}))
    with pytest.raises(InputError, match=r"holds \.csv, \.parquet"):
        trek.data.open(tmp_path)


def write_file(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        table.to_pandas().to_json(path, orient="records", lines=True)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        np.savez(path, **{name: table.column(name).to_numpy() for name in table.column_names})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.partition("2"), "num_partitions must be a whole number of at least 1, got '2'"),
        (lambda t: t.batches(2.5), "batch size must be a whole number, got 2.5"),
        (lambda t: t.batches("2"), "batch size must be a whole number, got '2'"),
        (lambda t: t.reduce({}), "needs at least one aggregate"),
        (lambda t: t.reduce(["x"]), r"needs at least one aggregate, such as .* got \['x'\]"),
        (lambda t: t.reduce({"a": ("x",)}), r"got \('x',\) for 'a'"),
        (lambda t: t.reduce({"s": ("x", "sum")}, by="s"), "'s' is a key and cannot be the name of an aggregate too"),
        (lambda t: t.reduce(lambda b: b).to_arrow(), "the function returned 3 rows; expected one"),
        (lambda t: t.with_columns(y=5), r"with_columns\(y=…\) needs an expression of trek.col\(…\), got 5"),
        (lambda t: t.select(), "needs one or more columns"),
        (lambda t: t.select("x", "x"), "each once"),
        (lambda t: t.drop("x", "s"), "needs one or more columns"),
        (lambda t: t.sort(), "at least one column"),
        (lambda t: t.head(-1), "at least 0, got -1"),
        (lambda t: t.map({"x": 1}), "needs a function, got dict"),
        (lambda t: t.filter("x < 2"), r"an expression such as trek.col\('x'\) < 10, got str 'x < 2'"),
        (lambda t: t.filter(trek.col("x") == None), r"comparison with None is never true. Use col\('x'\).is_null\(\)"),  # noqa: E711
        (lambda t: t.join({"x": [1]}, on="x"), r"join\(\) needs a Table, got dict"),
        (lambda t: t.rename({"x": "window"}).window(2), "which exists already"),
        (lambda t: t.map(lambda b: {}).to_arrow(), "the function returned no columns"),
        (lambda t: t.reduce({"s": "mean"}), "'mean' needs numbers, but column 's' has type string"),
        (lambda t: t.reduce({"x": "any"}), "'any' needs booleans, but column 'x' has type int64"),
        (
            lambda t: t.predict("runs/7"),
            r"got str 'runs/7'. For the path of a checkpoint, pass trek.Checkpoint\(path\)",
        ),
        (lambda t: t.map(lambda b: {"y": 3}).to_arrow(), "rows 0 to 2 of partition 0: column 'y' is a single value, 3"),
        (lambda t: t.map(lambda b: {"y": "abc"}).to_arrow(), "column 'y' is a single value, 'abc'"),
    ],
)
def test_what_cannot_be_is_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(Table.of({"x": [1, 2, 3], "s": ["a", "b", "c"]}))


def test_compute_may_give_its_batches_to_a_collector(table: Table) -> None:
    def twice(batches: Iterator[Any], collector: Any, context: Any) -> None:
        for batch in batches:
            collector.collect({"x": batch["x"] * 2})
            collector.collect({"x": batch["x"] * 2 + 1})

    assert sorted(table.compute(twice).to_numpy()["x"].tolist()) == list(range(20))


def test_describe_keeps_small_spreads_of_large_numbers() -> None:
    values = 1e12 + np.random.default_rng(0).normal(size=50_000)
    figures = Table.of({"x": values}).describe()
    assert figures.loc["x", "std"] == pytest.approx(values.std(ddof=1), rel=1e-6)


def test_columns_that_a_function_passes_on_keep_their_type_and_what_is_missing() -> None:
    table = Table.of({"x": [1, 2, None], "s": ["a", None, "c"]}, num_partitions=2)
    passed = table.map(lambda batch: {**batch, "y": batch["s"]}).to_arrow()
    assert passed.to_pydict() == {"x": [1, 2, None], "s": ["a", None, "c"], "y": ["a", None, "c"]}
    assert passed.schema.field("x").type == pa.int64()


def test_a_function_cannot_write_to_what_it_was_given() -> None:
    def fill(batch: Any) -> Any:
        batch["x"][np.isnan(batch["x"])] = 0
        return batch

    with pytest.raises(TrainingError, match="read-only"):
        Table.of({"x": [1, None]}).map(fill).to_arrow()


def test_integers_that_turn_to_floats_because_some_are_missing_come_with_the_remedy() -> None:
    table = Table.stream(pa.record_batch({"x": pa.array(x, pa.int64())}) for x in ([1, 2], [3, None]))
    with pytest.raises(InputError, match=r"as before, got double. Integers with missing values .* astype"):
        table.map(lambda batch: {"x": batch["x"] * 2}).to_arrow()


def test_an_array_alone_is_a_table_of_one_column() -> None:
    assert repr(Table.of(np.zeros((3, 2, 2)))) == "Table(value: double[2, 2])"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame({"x": [1, "a"]}), "different types in one column"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "2 columns called 'x'"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), "2 columns called 'x'"),
    ],
)
def test_data_that_makes_no_table_is_one_error(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Table.of(data)


def test_describe_counts_what_is_not_a_number_as_missing() -> None:
    figures = Table.of({"x": [1.0, float("nan"), None, 3.0]}).describe().loc["x"]
    assert (figures["missing"], figures["min"], figures["max"], figures["mean"]) == (2, 1.0, 3.0, 2.0)


def test_counting_a_stream_is_refused_before_it_is_read() -> None:
    stream = Table.stream(iter([{"x": [1, 2]}]))
    with pytest.raises(InputError, match=r"cache\(\) it first"):
        len(stream)
    assert len(stream.cache().map(lambda batch: batch)) == 2


def test_a_cached_stream_is_persisted_by_its_rows(tmp_path: Path) -> None:
    def persist(*values: int) -> Table:
        return Table.stream(iter([{"x": list(values)}])).cache().persist(tmp_path / "rows")

    assert persist(1, 2).to_numpy()["x"].tolist() == [1, 2]
    made = (tmp_path / "rows" / "manifest.json").stat().st_mtime_ns
    persist(1, 2)
    assert (tmp_path / "rows" / "manifest.json").stat().st_mtime_ns == made
    assert persist(3).to_numpy()["x"].tolist() == [3]


@pytest.mark.parametrize("source", ["digits", "persisted", "shared"])
def test_types_are_refused_where_they_would_be_ignored(source: str, tmp_path: Path) -> None:
    table = Table.of({"x": [1]})
    made = {"digits": lambda: "digits", "persisted": lambda: table.persist(tmp_path / "t") and tmp_path / "t"}
    name: Any = made.get(source, table.share)()
    with pytest.raises(InputError, match="types= is for text files"):
        trek.data.open(name, types={"x": "float32"})


@pytest.mark.parametrize("settings", [{"num_workers": 0}, {"num_workers": -1}, {"memory_limit_bytes": 0}])
@pytest.mark.parametrize("kind", [trek.data.ThreadExecutor, trek.data.ProcessExecutor])
def test_executors_of_nothing_are_refused(kind: Any, settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be a whole number of at least 1"):
        kind(**settings)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda t: t.with_columns(y=trek.col("x") / 2), "x: int64, s: string, y: double"),
        (lambda t: t.reduce({"x": "mean"}), "x: double"),
        (lambda t: t.reduce({"n": ("*", "count")}, by="s"), "s: string, n: int64"),
        (lambda t: t.gather(by="s"), "s: string, x: list<item: int64>"),
        (lambda t: t.join(t, on="s"), "s: string, x: int64, x_right: int64"),
    ],
)
def test_columns_are_known_where_no_row_is_left(make: Any, expected: str) -> None:
    table = make(Table.of({"x": [1, 2], "s": ["a", "b"]}).filter(trek.col("x") > 9))
    assert (repr(table), len(table), table.to_arrow().num_rows) == (f"Table({expected})", 0, 0)


def test_no_rows_are_counted_where_columns_cannot_be_known() -> None:
    assert len(Table.of({"x": [1, 2]}).flat_map(lambda row: [])) == 0
