"""Worker processes keep the contract of executors, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trek
from trek.data import Table
from trek.data.execution import partition_store, processes, running_on
from trek.data.execution.base import Executor
from trek.data.execution.processes import ProcessExecutor
from trek.data.execution.shm import new_folder, shared_root, sweep
from trek.data.execution.spill_folder import new_spill_folder, remove_spill_folder
from trek.errors import InputError, OutsideError, TrainingError
from trek.testing.execution_conformance import ExecutorConformance


class TestProcesses(ExecutorConformance):
    @pytest.fixture
    def make_executor(self, tmp_path: Path) -> Callable[..., Executor]:
        return partial(ProcessExecutor, 2, spill_dir=tmp_path)


def test_a_table_runs_on_processes_with_the_same_result() -> None:
    table = Table.of({"x": np.arange(1000), "image": np.ones((1000, 4, 4), np.uint8)}, num_partitions=4)
    ready = table.map(lambda batch: {**batch, "pid": np.full(len(batch["x"]), os.getpid())}).filter(trek.col("x") < 900)
    with running_on(ProcessExecutor(2)):
        columns = ready.partition(3).to_numpy()
    assert columns["x"].tolist() == list(range(900))
    assert columns["image"].shape == (900, 4, 4)
    assert os.getpid() not in columns["pid"]


def test_closing_leaves_no_file_in_shared_memory() -> None:
    before = set(shared_root().iterdir())
    with running_on(ProcessExecutor(1)) as executor:
        executor.put(pa.table({"x": [1]}))
        assert set(shared_root().iterdir()) - before
    assert not [path for path in set(shared_root().iterdir()) - before if path.name.startswith(f"trek-{os.getpid()}-")]


def test_a_worker_that_dies_is_an_error_and_is_replaced() -> None:
    def die(index: int, batches: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    with ProcessExecutor(1) as executor:
        part = executor.put(pa.table({"x": [1]}))
        with pytest.raises(OutsideError, match="died with exit code -9"):
            executor.map(die, [part])
        (same,) = executor.map(lambda index, batches: batches, [part])
        assert same.num_rows == 1


def test_a_users_failure_in_a_process_keeps_its_traceback() -> None:
    def broken(batch: Any) -> Any:
        raise KeyError("missing")

    table = Table.of({"x": np.arange(10)}, num_partitions=2).map(broken)
    with running_on(ProcessExecutor(2)), pytest.raises(TrainingError, match="map broken") as caught:
        table.to_arrow()
    assert "in broken" in caught.value.traceback_text


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import trek
            from trek.data.execution.processes import ProcessExecutor

            def double(batch):
                return {"x": batch["x"] * 2}

            with trek.data.running_on(ProcessExecutor(2)):
                print(trek.data.Table.of({"x": [1, 2, 3]}, num_partitions=2).map(double).to_numpy()["x"].tolist())
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "[2, 4, 6]\n", done.stderr


def test_what_a_killed_process_left_is_swept() -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = shared_root() / f"trek-{int(gone.stdout)}-0badcafe0bad"
    left.mkdir()
    mine = new_folder()
    sweep()
    assert not left.exists()
    assert mine.exists()
    mine.rmdir()


def test_a_cache_outlives_the_executor_that_filled_it() -> None:
    with running_on(ProcessExecutor(1)):
        cached = Table.of({"x": np.arange(1000)}).map(lambda batch: {"y": batch["x"] + 1}).cache()
    assert cached.to_numpy()["y"].sum() == 500500


def test_keyed_work_on_processes() -> None:
    left = Table.of({"k": np.arange(100) % 7, "v": np.arange(100)}, num_partitions=3)
    names = Table.of({"k": np.arange(7), "name": [f"n{i}" for i in range(7)]})
    with running_on(ProcessExecutor(2)):
        summed = left.join(names, on="k").reduce({"v": "sum"}, by="name").sort("name").to_arrow()
    assert summed["v"].to_pylist() == [sum(range(i, 100, 7)) for i in range(7)]


def test_a_cached_stream_is_worked_on_by_processes() -> None:
    with running_on(ProcessExecutor(2)):
        cached = Table.stream([{"x": np.arange(3)}, {"x": np.arange(3, 5)}]).cache()
        assert cached.map(lambda batch: {"y": batch["x"] * 2}).to_numpy()["y"].tolist() == [0, 2, 4, 6, 8]


def test_what_a_partition_costs_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every partition took the list of all files along, and counted all files of shared memory: 2,000 took 105 s."""
    sizes: dict[int, list[int]] = {10: [], 100: []}
    counted: list[Path] = []
    ask, bytes_in = processes._Worker.ask, partition_store._bytes_in

    def note_size(worker: Any, message: bytes) -> Any:
        sizes[num_files].append(len(message))
        return ask(worker, message)

    def note_count(folder: Path) -> int:
        counted.append(folder)
        return bytes_in(folder)

    monkeypatch.setattr(processes._Worker, "ask", note_size)
    monkeypatch.setattr(partition_store, "_bytes_in", note_count)
    for num_files in sizes:
        folder = tmp_path / str(num_files)
        folder.mkdir()
        for number in range(num_files):
            np.save(folder / f"{number:03}.npy", np.array([number]))
        with running_on(ProcessExecutor(1)):
            table = trek.data.open(folder).map(lambda batch: batch)
            assert table.to_numpy()["value"].tolist() == list(range(num_files))
    assert len(sizes[100]) == 10 * len(sizes[10])
    assert max(sizes[100]) < max(sizes[10]) + 100
    assert len(counted) < 20


def test_what_cannot_be_sent_to_a_process_is_named() -> None:
    """A lock in a closure was a foreign traceback that named neither step nor function."""
    lock = threading.Lock()

    def guarded(batch: Any) -> Any:
        with lock:
            return batch

    with running_on(ProcessExecutor(1)), pytest.raises(InputError, match=r"map guarded cannot be sent .*_thread.lock"):
        Table.of({"x": [1]}).map(lambda batch: batch).map(guarded).to_arrow()


def test_spill_folders_of_killed_processes_are_removed_by_the_next(tmp_path: Path) -> None:
    """They stayed for ever: nobody but their process knew of them."""
    program = (
        "import sys, time, pathlib; from trek.data.execution.spill_folder import new_spill_folder\n"
        "(new_spill_folder(pathlib.Path(sys.argv[1])) / 'rows.arrow').write_text('x')\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (left,) = tmp_path.iterdir()
        mine = new_spill_folder(tmp_path)
        assert left.exists(), "its process is alive"
        remove_spill_folder(mine)
        process.kill()
    mine = new_spill_folder(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]
    remove_spill_folder(mine)
    assert not list(tmp_path.iterdir())
