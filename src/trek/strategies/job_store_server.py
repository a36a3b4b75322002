"""The server of a job's key-value store; `job_store` is its client. Loads no torch: a coordinator serves it too."""

from __future__ import annotations

import socket
import threading
from typing import Any

from trek.world.job_connection import MAX_STRANGERS, Stranger, prove, receive_message, send_message, shut

_POLL_S = 0.2
"""How long an answer that is not there yet is held back; then the client asks again."""


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

    def forget(self, prefix: str) -> None:
        """Remove the keys that begin with `prefix`: of a generation of ranks that is over."""
        with self._changed:
            self._values = {key: value for key, value in self._values.items() if not key.startswith(prefix)}

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
