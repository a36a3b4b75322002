"""The server of a job's key-value store; `job_store` is its client. Loads no torch: a coordinator serves it too."""

from __future__ import annotations

import socket
import threading
from typing import Any

from trek.wire.connections import JobServer
from trek.wire.frames import receive_message, send_message

_POLL_S = 0.2
"""How long an answer that is not there yet is held back; then the client asks again."""


class JobStoreServer:
    """Serves the keys of one job until it is closed."""

    def __init__(self, listener: socket.socket, *, secret: str) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._server = JobServer([listener], secret=secret, serve=self._serve, name="trek-job-store")

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def close(self) -> None:
        """End every connection, and all threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.close()

    def forget(self, prefix: str) -> None:
        """Remove the keys that begin with `prefix`: of a generation of ranks that is over."""
        with self._changed:
            self._values = {key: value for key, value in self._values.items() if not key.startswith(prefix)}

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                send_message(connection, self._answer(receive_message(connection)))
        except (ValueError, KeyError, TypeError):
            return  # not a request of a rank

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
