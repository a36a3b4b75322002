"""KeptBatches: batches that are read before they count, and given again when they do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any


class KeptBatches:
    """Keeps what an iterator gives, and how far reading had come by then; then gives it again, and what follows.

    `state` is called when reading has begun and after each batch. `restore` takes what it returned, where the same
    place is reached again, and whether all that was kept is given by then.
    """

    def __init__(
        self,
        source: Iterator[Any],
        *,
        state: Callable[[], Any] = lambda: None,
        restore: Callable[[Any, bool], None] = lambda state, is_last: None,
    ) -> None:
        self._source = source
        self._state = state
        self._restore = restore
        self._begun = state()
        self._kept: list[tuple[Any, Any]] = []

    def first(self) -> Iterator[Any]:
        """What is read, for the first time."""
        for item in self._source:
            self._kept.append((_copied(item), self._state()))
            yield item

    def again(self) -> Iterator[Any]:
        """What `first` gave, then the rest; reading begins with this call."""
        self._restore(self._begun, not self._kept)
        return self._again()

    def _again(self) -> Iterator[Any]:
        kept, self._kept = self._kept[::-1], []
        while kept:
            item, state = kept.pop()
            self._restore(state, not kept)
            yield item
        yield from self._source


def _copied(item: Any) -> Any:
    """A copy, since the loop may change its batch in place; what cannot be copied is given again as it is then."""
    try:
        return copy.deepcopy(item)
    except Exception:  # noqa: BLE001 - any type may refuse in its own way
        return item
