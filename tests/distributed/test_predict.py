"""`trek.serve.predict` and its command: every row once, in order, whatever was killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from trek.data.table import Table
from trek.errors import InputError
from trek.serve.prediction import predict, predictions
from trek.serve.watched_folder import watch
from trek.testing.serving import CODE, train_points
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder

DOUBLE = "trek.testing.served_functions:double"


def _table(num_rows: int) -> pa.Table:
    return pa.table({"id": [f"row {n}" for n in range(num_rows)], "x": np.arange(num_rows)})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of 100 rows."""
    path = tmp_path / "rows.parquet"
    pq.write_table(_table(100), path)
    return path


def test_every_row_is_predicted_in_order_and_other_columns_stay(rows: Path, tmp_path: Path) -> None:
    done = predict(DOUBLE, rows, tmp_path / "out.parquet", columns=["x=x"], code=CODE, chunk_rows=7, batch_size=3)
    found = pq.read_table(done)
    assert found.column_names == ["id", "y"]
    assert found.column("id").to_pylist() == [f"row {n}" for n in range(100)]
    assert found.column("y").to_pylist() == [2 * n for n in range(100)]
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.parquet"]
    with pytest.raises(InputError, match="exists already"):
        predict(DOUBLE, rows, done, code=CODE)


def test_a_checkpoint_predicts_tensors_of_a_table(tmp_path: Path) -> None:
    points = np.random.default_rng(2).normal(size=(50, 6)).astype("float32")
    checkpoint = train_points(tmp_path / "run")
    table = Table.of({"point": points, "label": np.arange(50)})
    done = predict(checkpoint, table, tmp_path / "out.parquet", columns=["point"], keep=["label"], code=CODE)
    expected = CheckpointFolder(checkpoint).load_model(PointsTrial)(torch.from_numpy(points)).detach().numpy()
    found = pq.read_table(done)
    assert np.allclose(np.stack(found.column("output").to_pylist()), expected, atol=1e-6)
    assert found.column("label").to_pylist() == list(range(50))
    with pytest.raises(InputError, match=r"column 'input_0' does not exist.*input_0=COLUMN"):
        predict(checkpoint, table, tmp_path / "other.parquet", code=CODE)


def test_a_run_that_is_killed_anywhere_goes_on_and_ends_with_every_row_once(tmp_path: Path) -> None:
    """Killed until it gets through: after the first attempts, less is left to do than a kill allows for."""
    (tmp_path / "served.py").write_text(_SLOW)
    pq.write_table(_table(60), tmp_path / "rows.parquet")
    command = [sys.executable, "-m", "trek", "predict", "served:slowly", "rows.parquet", "-o", "out.parquet"]
    command += ["--column", "x=x", "--batch", "1", "--chunk", "5"]
    chance = random.Random(4)
    for kill in (True, True, False):
        process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
        if kill:
            seen = _lines(tmp_path)
            _wait_for_rows(tmp_path, seen + chance.randint(1, 9), process)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column("y").to_pylist() == [3 * n for n in range(60)]
    assert found.column("id").to_pylist() == [f"row {n}" for n in range(60)]
    assert _lines(tmp_path) < 60 + 2 * 10  # only the chunks that a kill cut short were done again


@pytest.mark.parametrize(
    "changed",
    [{"model": "served:minus"}, {"first": 100}, {"keep": []}, {"batch_size": 2}, {}],
    ids=["model", "data", "columns", "batch", "nothing"],
)
def test_a_run_that_failed_is_continued_with_nothing_else_than_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    (tmp_path / "served.py").write_text(_SIGNED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "served", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    rows, done = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    pq.write_table(_table(12), rows)
    settings = {"columns": ["x=x"], "chunk_rows": 4, "batch_size": 1}
    with pytest.raises(Exception, match="not yet"):
        predict("served:plus", rows, done, **settings)
    Path("go").touch()
    model, first = changed.get("model", "served:plus"), changed.get("first", 0)
    if first:
        pq.write_table(pa.table({"id": [f"row {n}" for n in range(12)], "x": np.arange(first, first + 12)}), rows)
    again = {name: value for name, value in changed.items() if name in ("keep", "batch_size")}
    predict(model, rows, done, **settings | again)
    expected = [number if model == "served:plus" else -number for number in range(first, first + 12)]
    assert pq.read_table(done).column("y").to_pylist() == expected
    num_calls, num_before = len(Path("calls.txt").read_text().splitlines()), 9  # of which the last one failed
    assert num_calls - num_before == (12 // again.get("batch_size", 1) if changed else 4)


def test_several_processes_give_the_same_file(rows: Path, tmp_path: Path) -> None:
    done = predict(DOUBLE, rows, tmp_path / "out.parquet", columns=["x"], code=CODE, chunk_rows=20, workers=2)
    assert pq.read_table(done).column("y").to_pylist() == [2 * n for n in range(100)]


def test_files_that_appear_in_a_folder_are_predicted_once(tmp_path: Path) -> None:
    inbox, outbox, stop, done = tmp_path / "in", tmp_path / "out", threading.Event(), list[Path]()
    inbox.mkdir()
    pq.write_table(_table(3), inbox / "a.parquet")
    (inbox / ".hidden").write_text("half")
    (inbox / "bad.parquet").write_text("nonsense")

    def follow(path: Path) -> None:
        done.append(path)
        if len(done) == 1:
            pq.write_table(_table(4), inbox / "b.parquet")
        else:
            stop.set()

    settings = {"columns": ["x"], "code": CODE, "poll_s": 0.05, "stop": stop, "on_done": follow}
    watch(DOUBLE, inbox, outbox, **settings)
    assert [path.name for path in done] == ["a.parquet.parquet", "b.parquet.parquet"]
    assert pq.read_table(done[1]).column("y").to_pylist() == [0, 2, 4, 6]
    stop.set()
    watch(DOUBLE, inbox, outbox, **settings)  # again: nothing is left to do
    assert len(done) == 2


def test_predictions_of_a_stream_come_as_its_rows_do() -> None:
    given = list[int]()

    def arriving() -> Iterator[dict[str, np.ndarray]]:
        for number in range(3):
            given.append(number)
            yield {"id": np.array([number]), "x": np.array([10 * number])}

    found = []
    for batch in predictions(DOUBLE, Table.stream(arriving()), columns=["x"], code=CODE):
        found.append(batch.to_pylist())
        assert len(given) <= len(found) + 1  # the next rows may be awaited, not all
    assert found == [[{"id": number, "y": 20 * number}] for number in range(3)]


_SLOW = """
import time
from collections.abc import Iterator
from pathlib import Path

def slowly(x):
    with Path("calls.txt").open("a") as file:
        file.write(f"{x[0]}\\n")
    time.sleep(0.02)
    return {"y": x * 3}
"""


_SIGNED = """
from pathlib import Path

def plus(x, sign=1):
    with Path("calls.txt").open("a") as file:
        file.write(f"{x[0]}\\n")
    if x[0] == 8 and not Path("go").exists():
        raise ValueError("not yet")
    return {"y": x * sign}

def minus(x):
    return plus(x, -1)
"""


def _lines(folder: Path) -> int:
    calls = folder / "calls.txt"
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def _wait_for_rows(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while _lines(folder) < count and process.poll() is None:
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
