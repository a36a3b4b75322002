"""The least that a parameter server can be: a hash index over an array, and raw bytes over a Unix socket.

No versions, no journal, no second client, no types, no errors: what `servers.py` compares the real one with, to see
what the contract costs on the machine at hand. A request has 24 bytes (what, how many ids, how much follows) and data.

    python benchmarks/ps/peers/bare_server.py SOCKET
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any

import numba
import numpy as np

DIM = 16
HEAD = struct.Struct("<qqq")
PULL, SGD, ADAM, PUT_DENSE, GET_DENSE = range(5)
_SLOTS = 1 << 22


@numba.njit(cache=True)
def find(keys: Any, rows: Any, used: Any, ids: Any) -> Any:
    """The rows of ids; those of unknown ones are made."""
    found = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        slot = (ids[i] * np.int64(-7046029254386353131) >> np.int64(20)) & (_SLOTS - 1)
        while rows[slot] >= 0 and keys[slot] != ids[i]:
            slot = (slot + 1) & (_SLOTS - 1)
        if rows[slot] < 0:
            keys[slot], rows[slot] = ids[i], used[0]
            used[0] += 1
        found[i] = rows[slot]
    return found


@numba.njit(cache=True)
def gather(values: Any, rows: Any, out: Any) -> None:
    """Copy rows out."""
    for i in range(len(rows)):
        for k in range(DIM):
            out[i, k] = values[rows[i], k]


@numba.njit(cache=True)
def sgd(values: Any, rows: Any, gradients: Any) -> None:
    """A step of plain SGD."""
    for i in range(len(rows)):
        for k in range(DIM):
            values[rows[i], k] -= np.float32(0.1) * gradients[i, k]


@numba.njit(cache=True)
def adam(values: Any, means: Any, squares: Any, rows: Any, gradients: Any, rate: float, scale: float) -> None:
    """A step of Adam, with its bias corrections in `rate` and `scale`."""
    for i in range(len(rows)):
        row = rows[i]
        for k in range(DIM):
            g = gradients[i, k]
            means[row, k] += np.float32(0.1) * (g - means[row, k])
            squares[row, k] += np.float32(0.001) * (g * g - squares[row, k])
            values[row, k] -= np.float32(rate) * means[row, k] / (np.sqrt(squares[row, k]) * np.float32(scale) + 1e-8)


def receive(connection: socket.socket, into: memoryview) -> None:
    """Fill a buffer."""
    while len(into):
        size = connection.recv_into(into)
        if not size:
            raise EOFError
        into = into[size:]


def serve(path: str) -> None:
    """Answer one client until it leaves."""
    keys, rows, used = np.empty(_SLOTS, np.int64), np.full(_SLOTS, -1, np.int64), np.zeros(1, np.int64)
    values, means, squares = (np.zeros((2_500_000, DIM), np.float32) for _ in range(3))
    dense, head, data = np.zeros(1_000_000, np.float32), bytearray(HEAD.size), bytearray(1 << 23)
    out = np.empty((1 << 16, DIM), np.float32)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    connection = listener.accept()[0]
    step = 0
    while True:
        try:
            receive(connection, memoryview(head))
        except EOFError:
            return
        what, count, size = HEAD.unpack(head)
        receive(connection, memoryview(data)[:size])
        ids = np.frombuffer(data, np.int64, count)
        if what == GET_DENSE:
            connection.sendall(memoryview(dense).cast("B"))
            continue
        if what == PUT_DENSE:
            dense -= np.float32(0.1) * np.frombuffer(data, np.float32, len(dense))
            connection.sendall(b"\0")
            continue
        found = find(keys, rows, used, ids)
        if what == PULL:
            gather(values, found, out)
            connection.sendall(memoryview(out[:count]).cast("B"))
            continue
        gradients = np.frombuffer(data, np.float32, count * DIM, count * 8).reshape(count, DIM)
        if what == SGD:
            sgd(values, found, gradients)
        else:
            step += 1
            adam(values, means, squares, found, gradients, 0.001 / (1 - 0.9**step), (1 - 0.999**step) ** -0.5)
        connection.sendall(b"\0")


class BareClient:
    """Its one client."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answer = bytearray(1)

    def ask(self, what: int, ids: np.ndarray, *data: np.ndarray, into: np.ndarray | None = None) -> None:
        """Send a request and take its answer."""
        parts = [memoryview(one).cast("B") for one in (ids, *data) if one.size]
        head = HEAD.pack(what, len(ids), sum(map(len, parts)))
        sent = self._socket.sendmsg([head, *parts]) - len(head)
        for part in parts:
            if sent < len(part):
                self._socket.sendall(part[max(sent, 0) :])
            sent -= len(part)
        receive(self._socket, memoryview(into).cast("B") if into is not None else memoryview(self._answer))


if __name__ == "__main__":
    serve(sys.argv[1])
