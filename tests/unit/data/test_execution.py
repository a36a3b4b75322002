"""Threads keep the contract of executors; processes are in tests/distributed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trek.data.execution.local
import trek.data.execution.parallel
from trek.data import Table
from trek.data.execution import EXECUTORS, open_executor, running_on
from trek.data.execution.base import Executor
from trek.data.execution.partition_store import MemoryStore
from trek.data.execution.parts import Part
from trek.data.execution.threads import ThreadExecutor
from trek.errors import ConfigError, StorageError
from trek.testing.execution_conformance import ExecutorConformance
from trek.testing.plugins import plugin_package


class TestThreads(ExecutorConformance):
    @pytest.fixture
    def make_executor(self, tmp_path: Path) -> Callable[..., Executor]:
        return partial(ThreadExecutor, 2, spill_dir=tmp_path)


def test_a_spill_folder_without_room_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write_batch(self, batch: pa.RecordBatch) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(pa.ipc, "new_file", lambda file, schema: Full())
    with ThreadExecutor(1, memory_limit_bytes=10, spill_dir=tmp_path) as executor:
        with pytest.raises(StorageError, match="no space left"):
            executor.put(pa.table({"x": list(range(100))}))
        assert not list(tmp_path.rglob("*.arrow"))


def test_spilling_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(memory_limit_bytes=20_000, spill_dir=tmp_path)
    store.spill_file()
    store.spill_file()  # by another partition, before the first one wrote a byte
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "results exceed the memory limit of 0.02 MB"
    ]


@pytest.mark.parametrize("num_partitions", [1, 3])
def test_rows_of_what_is_not_divided_are_counted(num_partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one large file was worked on, nothing was shown."""
    shown: dict[str, Any] = {}

    class Bar:
        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, count: int = 1) -> None:
            shown["done"] = shown.get("done", 0) + count

    def make_bar(total: int | None, *, unit: str, **options: Any) -> Bar:
        shown.update(total=total, unit=unit.strip())
        return Bar()

    monkeypatch.setattr(trek.data.execution.local, "progress_bar", make_bar)
    monkeypatch.setattr(trek.data.execution.parallel, "progress_bar", make_bar)
    table = Table.of({"x": list(range(20_000))}, num_partitions=num_partitions)
    with running_on(ThreadExecutor(2)):
        assert table.map(lambda batch: batch).num_rows == 20_000
    assert shown["done"] == (20_000 if num_partitions == 1 else 3)
    assert shown["unit"] == ("rows" if num_partitions == 1 else "partitions")


def test_an_executor_is_made_by_name_with_its_settings(tmp_path: Path) -> None:
    with running_on("threads", num_workers=3, spill_dir=tmp_path) as executor:
        assert (type(executor), executor.num_workers) == (ThreadExecutor, 3)
        assert Table.of({"x": [1, 2]}).map(lambda batch: {"x": batch["x"] * 2}).to_numpy()["x"].tolist() == [2, 4]
    with pytest.raises(ConfigError, match=r"executor 'thread' does not exist\. Did you mean 'threads'"):
        open_executor("thread")
    with pytest.raises(ConfigError, match=r"executor 'threads' has no setting 'workers'\. It has: num_workers, memory"):
        open_executor("threads", workers=2)


SOURCE = """
from trek.data.execution.threads import ThreadExecutor


class ReverseExecutor(ThreadExecutor):
    def _run_all(self, run, count):
        return [run(index) for index in reversed(range(count))][::-1]
"""


class TestAPlugin(ExecutorConformance):
    """An executor of another package."""

    @pytest.fixture
    def make_executor(self, tmp_path: Path) -> Iterator[Callable[..., Executor]]:
        points = {"trek.executors": {"reverse": "reverse_executor:ReverseExecutor"}}
        with plugin_package(
            tmp_path / "p", module="reverse_executor", source=SOURCE, entry_points=points, refresh=EXECUTORS
        ):
            yield partial(open_executor, "reverse", num_workers=2, spill_dir=tmp_path)


class Disorderly(ThreadExecutor):
    """Gives partitions in the wrong order."""

    def map(self, task: Any, *inputs: Any) -> list[Part]:
        return super().map(task, *inputs)[::-1]


def test_an_executor_that_breaks_the_contract_fails_the_suite() -> None:
    with Disorderly(2) as executor, pytest.raises(AssertionError):
        ExecutorConformance().test_map_gives_a_part_for_each_partition_in_order(executor)
