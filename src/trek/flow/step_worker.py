"""A worker process: takes steps from the runner over a socket, one after the other, until the connection closes.

The socket is in a folder that only this user may enter, and what arrives was sent by the runner that started this
process: the only pickles loaded here are our own.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trek.flow.performing import output_into, perform, surroundings


def serve(connection: Connection) -> None:
    """Perform requests until the connection closes."""
    functions: dict[int, Any] = {}
    hello = pickle.loads(connection.recv_bytes())  # noqa: S301 - see the module's docstring
    sys.path[:] = hello["sys_path"]
    while True:
        try:
            request = pickle.loads(connection.recv_bytes())  # noqa: S301
        except (EOFError, ConnectionResetError):
            return
        connection.send_bytes(pickle.dumps(_answer(request, functions)))


def _answer(request: dict[str, Any], functions: dict[int, Any]) -> dict[str, Any]:
    with output_into(Path(request["log"])), surroundings(env=request["env"], cwd=request["cwd"]):
        _use_threads(request["env"])
        try:
            if "function" in request:
                functions[request["function_id"]] = pickle.loads(request["function"])  # noqa: S301
            args, kwargs = pickle.loads(request["arguments"])  # noqa: S301
        except Exception as error:  # noqa: BLE001 - importing the user's modules may raise anything
            return {"error": f"the step cannot be loaded: {type(error).__name__}: {error}", "traceback": ""}
        return perform(
            functions[request["function_id"]],
            args,
            kwargs,
            num_outputs=request["num_outputs"],
            attempt=Path(request["attempt"]),
            digest=request["digest"],
        )


def _use_threads(env: dict[str, str]) -> None:
    """What torch would read from the environment when it is loaded, for a torch that an earlier step loaded."""
    if "torch" in sys.modules and "OMP_NUM_THREADS" in env:
        sys.modules["torch"].set_num_threads(int(env["OMP_NUM_THREADS"]))


def main() -> None:
    """Connect to the runner and serve it."""
    address, token = os.environ.pop("TREK_FLOW_SOCKET"), os.environ.pop("TREK_FLOW_TOKEN")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        with Connection(client.detach()) as connection:
            connection.send_bytes(token.encode())
            serve(connection)


if __name__ == "__main__":
    main()
