"""Threads keep the contract of executors; processes are in tests/distributed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from trek.data.execution.base import Executor
from trek.data.execution.threads import ThreadExecutor
from trek.testing.execution_conformance import ExecutorConformance


class TestThreads(ExecutorConformance):
    @pytest.fixture
    def make_executor(self, tmp_path: Path) -> Callable[..., Executor]:
        return partial(ThreadExecutor, 2, spill_dir=tmp_path)
