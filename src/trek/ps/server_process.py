"""The process of a parameter server: `python -m trek.ps.server_process`, one for each server of a job.

What it needs comes in the environment: TREK_JOB_SECRET, TREK_SERVER_ADDRESSES (of all servers), TREK_ROLE_RANK (which
of them this is), and TREK_SERVER_FOLDER, where the journals are. A server that is started again goes on from its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from trek.errors import OutsideError, TrekError
from trek.ps.addresses import SERVER_ADDRESSES, SERVER_FOLDER, Address, parse_address
from trek.ps.journal import LEAST_BYTES, Journal
from trek.ps.rules import Rule
from trek.ps.server import Server, listen
from trek.ps.server_state import Push, RowGradients, ServerState
from trek.ps.service import Service
from trek.ps.table_spec import TableSpec

_POLL_S = 0.02


def serve(
    address: Address,
    *,
    secret: str,
    folder: Path | None,
    grpc_port: int | None = None,
    metrics_port: int | None = None,
    is_journaled: bool = True,
    journal_bytes: int = LEAST_BYTES,
    outlives_clients: bool = False,
    on_ready: Callable[[int, int | None], None] = lambda port, grpc_port: None,
) -> None:
    """Serve until SIGTERM or SIGINT, and then until the last client has gone if it `outlives_clients`.

    OutsideError if the state was damaged: a server that is started again reads it from the journal.

    `folder` has the journal, and rows that do not fit into memory.

    A journal that is larger than the state and than `journal_bytes` is replaced by a snapshot. `on_ready` is called
    with the ports once requests are answered.
    """
    torch.set_num_threads(1)  # requests of several clients run side by side
    listeners = listen(address, secret=secret)
    warm_up()
    journal = Journal(folder / "journal", least_bytes=journal_bytes) if folder is not None and is_journaled else None
    ended = threading.Event()
    rows = folder / "rows" if folder is not None else None
    service = Service(folder=rows, journal=journal, on_failure=ended.set)
    server = Server(service, listeners, secret=secret)
    remote = None
    if grpc_port is not None:
        from trek.ps.grpc_service import serve_grpc

        remote, grpc_port = serve_grpc(service, host=address[0], port=grpc_port, secret=secret)
    metrics = None
    if metrics_port is not None:
        from trek.ps.prometheus import MetricsServer

        metrics = MetricsServer(service.figures, host=address[0], port=metrics_port)
    on_ready(server.port, grpc_port)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: ended.set())
    ended.wait()
    while (
        outlives_clients and server.num_clients and not service.failure
    ):  # workers that are told to stop as well save what is here
        time.sleep(_POLL_S)
    if remote is not None:
        remote.stop(grace=None).wait()
    if metrics is not None:
        metrics.close()
    server.close()
    if service.failure:
        raise OutsideError(service.failure)


def warm_up() -> None:
    """Load what the first push would otherwise wait for: compiled loops, and torch's compiler behind optimizers."""
    rows = RowGradients("warm", np.arange(2), np.ones((2, 2), np.float32), Rule.named("SGD"))
    state = ServerState()
    state.add_table(TableSpec(name="warm", dim=2))
    push = Push("warm", 1, 0, rows=[rows])
    state.judge(push)
    state.apply(push)
    state.tables["warm"].pull(np.arange(3))
    state.close()


def main(environ: Mapping[str, str] = os.environ) -> None:
    """Serve as a member of a gang."""
    rank = int(environ["TREK_ROLE_RANK"])
    address = parse_address(environ[SERVER_ADDRESSES].split(",")[rank])
    folder = Path(environ[SERVER_FOLDER]) / str(rank)
    try:
        serve(address, secret=environ["TREK_JOB_SECRET"], folder=folder, outlives_clients=True)
    except TrekError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
