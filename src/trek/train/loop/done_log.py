"""DoneLog: what the ranks have done together since the last complete step. Pure.

An entry is a part of the loop that all ranks go through: a report, a validation, one of several optimizer steps of a
batch. A worker that was interrupted takes the log of the worker that came furthest, and repeats its own code: an entry
of the log is not done twice, and its result is the one that the other ranks got.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

Key: TypeAlias = tuple[str, int, int]
"""The name of the part, the number of batches read, and how often this part came before at that batch."""


class DoneLog:
    """One worker's copy."""

    def __init__(self) -> None:
        self._results: dict[Key, Any] = {}
        self._seen: Counter[tuple[str, int]] = Counter()

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, key: Key) -> bool:
        return key in self._results

    def __getitem__(self, key: Key) -> Any:
        return self._results[key]

    def next_key(self, name: str, batches: int) -> Key:
        """The key of the part that this worker has come to."""
        key = (name, batches, self._seen[name, batches])
        self._seen[name, batches] += 1
        return key

    def add(self, key: Key, result: Any) -> None:
        """The part is done."""
        self._results[key] = result

    def clear(self) -> None:
        """A step is complete: nothing before it is repeated."""
        self._results.clear()
        self._seen.clear()

    def rewind(self, batches: int) -> None:
        """The loop goes back to where `batches` were read, and repeats what follows."""
        for name, at in list(self._seen):
            if at > batches:
                del self._seen[name, at]

    def forget(self, batches: int) -> None:
        """All workers are past what belongs to the first `batches`."""
        self._results = {key: result for key, result in self._results.items() if key[1] > batches}
        for name, at in list(self._seen):
            if at <= batches:
                del self._seen[name, at]

    def state_dict(self) -> list[list[Any]]:
        """The entries, in their order."""
        return [[list(key), result] for key, result in self._results.items()]

    def load_state_dict(self, entries: list[list[Any]]) -> None:
        """Take over another worker's entries; how far this worker's own code has come stays."""
        self._results = {(key[0], key[1], key[2]): result for key, result in entries}
