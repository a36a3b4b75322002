"""The key-value store through which the ranks of a job find each other: a rank's side.

torch's TCPStore answers whoever connects. This one speaks only over connections of the job
(`trek.wire.connections`). Rank 0 serves it, or the coordinator of a job whose ranks come and go; see
`job_store_server`. Every rank, rank 0 included, is a client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from trek.phases import reached
from trek.wire.connections import connect, shut
from trek.wire.frames import receive_message, send_message


class JobStore(Store):
    """A rank's side. Safe to use from several threads, those of torch's backends included."""

    def __init__(self, host: str, port: int, *, secret: str, timeout_s: float, connect_s: float | None = None) -> None:
        """`timeout_s` is how long to wait for a key, and, unless `connect_s` is given, for the server."""
        super().__init__()
        self._host, self._port, self._secret = host, port, secret
        self._timeout_s = timeout_s
        self._connect_s = timeout_s if connect_s is None else connect_s
        self._lock = threading.Lock()
        self._clones: list[JobStore] = []
        """Kept alive here: torch's C++ holds on to a clone, but not to what Python adds to it."""
        try:
            self._connection = connect(host, port, secret=secret, timeout_s=self._connect_s)
        except ConnectionError as error:
            raise dist.DistNetworkError(f"the store of rank 0: {error}") from error

    def close(self) -> None:
        """Disconnect, clones included."""
        self.abandon()
        self._connection.close()
        for clone in self._clones:
            clone.close()

    def abandon(self) -> None:
        """Wake up the threads that wait for a key, with an error. Safe to call from any thread."""
        shut(self._connection)
        for clone in self._clones:
            clone.abandon()

    def clone(self) -> JobStore:
        """Another connection to the same keys."""
        where = self._host, self._port
        self._clones.append(JobStore(*where, secret=self._secret, timeout_s=self._timeout_s, connect_s=self._connect_s))
        return self._clones[-1]

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait from now on."""
        self._timeout_s = timeout.total_seconds()

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self._ask("set", key, _text(value))

    def get(self, key: str) -> bytes:
        """The value of a key, waited for."""
        reached("connecting")
        self.wait([key])
        return str(self._ask("get", key)).encode("latin-1")

    def add(self, key: str, amount: int) -> int:
        """Add to a counter; the new value."""
        return int(self._ask("add", key, amount))

    def append(self, key: str, value: str | bytes) -> None:
        """Append to a value."""
        self._ask("append", key, _text(value))

    def compare_set(self, key: str, expected: str | bytes, wanted: str | bytes) -> bytes:
        """Replace the expected value; the value that is there now."""
        return str(self._ask("compare_set", key, _text(expected), _text(wanted))).encode("latin-1")

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all the keys are set."""
        return bool(self._ask("check", list(keys)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all the keys are set."""
        reached("assembling")
        timeout_s = self._timeout_s if timeout is None else timeout.total_seconds()
        deadline = time.monotonic() + timeout_s
        while not self._ask("wait", list(keys)):
            if time.monotonic() >= deadline:
                raise dist.DistStoreError(f"wait timeout after {timeout_s:g} s, keys: {', '.join(keys)}")

    def delete_key(self, key: str) -> bool:
        """Whether there was such a key."""
        return bool(self._ask("delete_key", key))

    def num_keys(self) -> int:
        """How many keys are set."""
        return int(self._ask("num_keys"))

    # torch's C++ looks these up by their names there.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def hasExtendedApi(self) -> bool:  # noqa: N802
        """Only what is above."""
        return False

    def _ask(self, do: str, *args: Any) -> Any:
        try:
            with self._lock:
                send_message(self._connection, {"do": do, "with": args})
                return receive_message(self._connection)
        except (OSError, EOFError) as error:
            raise dist.DistNetworkError(
                f"the store of rank 0 is gone: {error or 'it closed the connection'}"
            ) from error


def _text(value: str | bytes) -> str:
    return (value.encode() if isinstance(value, str) else bytes(value)).decode("latin-1")
