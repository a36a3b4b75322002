"""The rows of a named data set, parsed once when first read."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trek.data.datasets import Dataset, find_dataset
from trek.data.execution.base import Executor
from trek.data.execution.parts import Readable
from trek.data.fetching.fetch import fetch
from trek.data.plans.plan import PlanNode, Source, Stream
from trek.data.sources.memory import MemorySource

if TYPE_CHECKING:
    import polars as pl

    from trek.data.plans.lowering import Lowering


class NamedSource(Source):
    """A split of a data set; its files were fetched and verified when it was opened."""

    def __init__(self, dataset: Dataset, split: str, paths: Mapping[str, Path], *, num_partitions: int = 1) -> None:
        self.dataset = dataset
        self.split_name = split
        self.paths = dict(paths)
        self._num_partitions = num_partitions
        self._table: pa.Table | None = None
        self._memory: MemorySource | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(cls, name: str, *, split: str) -> NamedSource:
        """Fetch what is missing."""
        dataset = find_dataset(name)
        dataset.require_split(split)
        return cls(dataset, split, fetch(dataset, split=split))

    @property
    def num_partitions(self) -> int:
        """How many ranges of rows."""
        return self._num_partitions

    @property
    def num_rows(self) -> int:
        """Rows of the split."""
        return self.dataset.num_rows[self.split_name]

    @property
    def schema(self) -> pa.Schema:
        """The data set's columns."""
        return self.table.schema

    @property
    def table(self) -> pa.Table:
        """The parsed rows."""
        with self._lock:
            if self._table is None:
                self._table = self.dataset.parse(self.paths, self.split_name)
            return self._table

    def whole(self) -> pa.Table:
        """The parsed rows."""
        return self.table

    def describe(self) -> str:
        """One line for `explain`."""
        return f"data set {self.dataset.name}, split {self.split_name}"

    def identity(self) -> Any:
        """The checksums its files were verified by."""
        files = self.dataset.splits[self.split_name]
        return (self.dataset.name, self.split_name, [f.sha256 or f.md5 for f in files], self._num_partitions)

    def read(self, index: int) -> Stream:
        """The rows of a range."""
        return self._in_memory().read(index)

    def pieces(self, executor: Executor) -> list[Readable]:
        """Parts over the parsed rows, so that workers in other processes share them instead of parsing again."""
        return self._in_memory().pieces(executor)

    def lowered(self, lowering: Lowering) -> pl.LazyFrame | None:
        """The parsed rows."""
        return lowering.held(self.table.to_batches(), self.table.schema)

    def single(self, index: int) -> PlanNode | None:
        """One range of the parsed rows."""
        return self._in_memory().single(index)

    def split(self, num_partitions: int) -> Source:
        """The same split in other ranges, parsed once for both."""
        other = NamedSource(self.dataset, self.split_name, self.paths, num_partitions=num_partitions)
        other._table = self._table
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Whoever receives it parses for itself: the files are verified and small beside what they hold.
        return {**self.__dict__, "dataset": self.dataset.name, "_table": None, "_memory": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "dataset": find_dataset(state["dataset"]), "_lock": threading.Lock()}

    def _in_memory(self) -> MemorySource:
        if self._memory is None:
            self._memory = MemorySource(self.table, num_partitions=self._num_partitions)
        return self._memory
