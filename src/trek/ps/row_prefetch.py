"""RowPrefetch: rows of the next batch, pulled while this one is computed.

What is pulled ahead may be changed before it is used. This worker knows the ids that it pushed itself in between: those
are pulled again, so a worker that is alone gets what it would have got without. What other workers push in between is
seen one batch later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch

from trek.errors import TrekError
from trek.ps.client import Client
from trek.ps.distinct_ids import distinct
from trek.ps.id_index import Ids

_MAX_WAITING = 2
"""Of each table: those of the batch that is computed, and of the next one."""


@dataclass
class _Pulled:
    rows: Future[tuple[Ids, torch.Tensor]]
    pushed: list[Ids] = field(default_factory=list)
    """Ids that were pushed since."""


class RowPrefetch:
    """Pulls on a thread with a connection of its own. Everything else is called from one thread."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self._open_client = open_client
        self._client: Client | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[str, list[_Pulled]] = {}
        self.num_taken = 0
        """Lookups whose rows were there already."""

    def begin(self, wanted: Mapping[str, torch.Tensor]) -> None:
        """Pull the rows that are going to be looked up next: ids by table."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="trek-rows")
            self._client = self._open_client()
        for table, ids in wanted.items():
            waiting = self._waiting.setdefault(table, [])
            waiting.append(_Pulled(self._pool.submit(self._pull, table, ids)))
            del waiting[:-_MAX_WAITING]

    def note_push(self, rows: Mapping[str, torch.Tensor]) -> None:
        """These ids are pushed: what was pulled of them before is old."""
        for table, ids in rows.items():
            for one in self._waiting.get(table, ()):
                one.pushed.append(ids.numpy())

    def take(self, table: str, ids: Ids, *, pull: Callable[[Ids], torch.Tensor]) -> torch.Tensor | None:
        """The rows of distinct ids, if exactly those were pulled ahead; `pull` gets those that are old."""
        waiting = self._waiting.get(table, [])
        for place, one in enumerate(waiting):
            with suppress(TrekError):  # a server was away for too long; whoever asks it again is told
                known, rows = one.rows.result()
                if np.array_equal(known, ids):
                    del waiting[: place + 1]
                    self.num_taken += 1
                    return _renewed(rows, ids, one.pushed, pull)
        return None

    def drop(self) -> None:
        """Forget what was pulled: somebody else may have changed it."""
        self._waiting.clear()

    def close(self) -> None:
        """End the thread and its connection."""
        if self._pool is not None and self._client is not None:
            self._pool.shutdown(cancel_futures=True)
            self._client.close()

    def _pull(self, table: str, ids: torch.Tensor) -> tuple[Ids, torch.Tensor]:
        assert self._client is not None
        wanted, _ = distinct(ids.detach().reshape(-1).to("cpu", torch.int64).contiguous().numpy())
        return wanted, self._client.pull_rows(table, wanted)


def _renewed(rows: torch.Tensor, ids: Ids, pushed: list[Ids], pull: Callable[[Ids], torch.Tensor]) -> torch.Tensor:
    if not pushed:
        return rows
    old = np.isin(ids, np.concatenate(pushed))
    if old.any():
        rows[torch.from_numpy(old)] = pull(ids[old])
    return rows
