"""The key-value store through which the ranks of a job find each other, open to processes that know the job's secret.

torch's TCPStore answers whoever connects. This one speaks only over connections of the job
(`trek.world.job_connection`). Rank 0 serves it from threads of its own; every rank, rank 0 included, is a client.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from trek.world.job_connection import MAX_STRANGERS, Stranger, connect, prove, receive_message, send_message, shut

_POLL_S = 0.2
"""How long the server holds back an answer that is not there yet; then the client asks again."""


class JobStoreServer:
    """Serves the keys of one job until it is closed."""

    def __init__(self, listener: socket.socket, *, secret: str) -> None:
        self._listener = listener
        self._secret = secret
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="trek-job-store", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """End every connection, and all threads."""
        with self._changed:
            self._is_closed = True
            open_now = dict(self._connections)
            self._changed.notify_all()
        shut(self._listener)
        for connection in open_now:
            shut(connection)
        self._thread.join()
        self._listener.close()
        for thread in open_now.values():
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="trek-job-store", daemon=True)
            with self._changed:
                if self._is_closed or not self._strangers.acquire(blocking=False):
                    connection.close()
                    continue
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    prove(connection, self._secret, is_server=True)
                finally:
                    self._strangers.release()
                while True:
                    send_message(connection, self._answer(receive_message(connection)))
        except (EOFError, OSError, ValueError, KeyError, TypeError, Stranger):
            return  # it has gone, or is not a rank of this job
        finally:
            with self._changed:
                self._connections.pop(connection, None)

    def _answer(self, request: dict[str, Any]) -> Any:
        with self._changed:
            answer = getattr(self, f"_do_{request['do']}")(*request["with"])
            self._changed.notify_all()
            return answer

    def _do_set(self, key: str, value: str) -> None:
        self._values[key] = value.encode("latin-1")

    def _do_wait(self, keys: list[str]) -> bool:
        return self._changed.wait_for(lambda: self._is_closed or all(key in self._values for key in keys), _POLL_S)

    def _do_check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def _do_get(self, key: str) -> str | None:
        value = self._values.get(key)
        return None if value is None else value.decode("latin-1")

    def _do_add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def _do_append(self, key: str, value: str) -> None:
        self._values[key] = self._values.get(key, b"") + value.encode("latin-1")

    def _do_compare_set(self, key: str, expected: str, wanted: str) -> str:
        """torch's rule: a missing key is set only where nothing was expected."""
        now = self._values.get(key)
        if (now is None and not expected) or now == expected.encode("latin-1"):
            self._values[key] = now = wanted.encode("latin-1")
        return expected if now is None else now.decode("latin-1")

    def _do_delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def _do_num_keys(self) -> int:
        return len(self._values)


class JobStore(Store):
    """A rank's side. Safe to use from several threads, those of torch's backends included."""

    def __init__(self, host: str, port: int, *, secret: str, timeout_s: float) -> None:
        super().__init__()
        self._host, self._port, self._secret = host, port, secret
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._clones: list[JobStore] = []
        """Kept alive here: torch's C++ holds on to a clone, but not to what Python adds to it."""
        try:
            self._connection = connect(host, port, secret=secret, timeout_s=timeout_s)
        except ConnectionError as error:
            raise dist.DistNetworkError(f"the store of rank 0: {error}") from error

    def close(self) -> None:
        """Disconnect, clones included."""
        for clone in self._clones:
            clone.close()
        self._connection.close()

    def clone(self) -> JobStore:
        """Another connection to the same keys."""
        self._clones.append(JobStore(self._host, self._port, secret=self._secret, timeout_s=self._timeout_s))
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
