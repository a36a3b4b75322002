"""Threads keep the contract of executors; processes are in tests/distributed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from trek.data.execution.base import Executor
from trek.data.execution.partition_store import MemoryStore
from trek.data.execution.threads import ThreadExecutor
from trek.errors import StorageError
from trek.testing.execution_conformance import ExecutorConformance


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
