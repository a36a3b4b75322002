"""The process of a parameter server: `python -m trek.ps.server_process`, one for each server of a job.

What it needs comes in the environment: TREK_JOB_SECRET, TREK_SERVER_ADDRESSES (of all servers), TREK_ROLE_RANK (which
of them this is), and TREK_MEMBER_DIR, where its journal is. A server that is started again goes on from its journal.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import torch

from trek.ps.addresses import Address, parse_address
from trek.ps.journal import Journal
from trek.ps.server import Server, listen
from trek.ps.service import Service

ADDRESSES = "TREK_SERVER_ADDRESSES"


def serve(
    address: Address, *, secret: str, folder: Path | None, grpc_port: int | None = None, is_journaled: bool = True
) -> None:
    """Serve until SIGTERM or SIGINT. `folder` has the journal, and rows that do not fit into memory."""
    torch.set_num_threads(1)  # requests of several clients run side by side
    listeners = listen(address, secret=secret)
    journal = Journal(folder / "journal") if folder is not None and is_journaled else None
    service = Service(folder=folder / "rows" if folder is not None else None, journal=journal)
    server = Server(service, listeners, secret=secret)
    remote = None
    if grpc_port is not None:
        from trek.ps.grpc_service import serve_grpc

        remote, grpc_port = serve_grpc(service, host=address[0], port=grpc_port, secret=secret)
    also = f", gRPC at {address[0]}:{grpc_port}" if remote is not None else ""
    print(f"parameter server at {address[0]}:{server.port}{also}", flush=True)
    ended = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: ended.set())
    ended.wait()
    if remote is not None:
        remote.stop(grace=None).wait()
    server.close()


def main(environ: Mapping[str, str] = os.environ) -> None:
    """Serve as a member of a gang."""
    address = parse_address(environ[ADDRESSES].split(",")[int(environ["TREK_ROLE_RANK"])])
    serve(address, secret=environ["TREK_JOB_SECRET"], folder=Path(environ["TREK_MEMBER_DIR"]) / "server")


if __name__ == "__main__":
    main()
