"""The process of a coordinator: `python -m trek.elastic.coordinator_process`, started with every elastic job.

It is a process of its own so that neither a busy worker nor a restart of the control plane holds up the others. What it
needs comes in the environment: `TREK_JOB_SECRET`, `TREK_COORDINATOR_ADDRESSES` (`host:port`, where it listens), and
`TREK_ELASTIC`, the settings of the membership as JSON. Its journal is in `TREK_COORDINATOR_DIR`, by default its
member's folder. SIGTERM means that the job is to stop: its members are told, and the process ends with the last of
them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from trek.elastic.coordinator import Coordinator
from trek.elastic.membership_settings import MembershipSettings
from trek.strategies.job_store_server import JobStoreServer
from trek.system.clock import SystemClock
from trek.wire.connections import listen_at
from trek.world.addresses import is_loopback

SETTINGS = "TREK_ELASTIC"
FOLDER = "TREK_COORDINATOR_DIR"
ADDRESSES = "TREK_COORDINATOR_ADDRESSES"


def main(environ: Mapping[str, str] = os.environ) -> None:
    """Serve until the job has stopped."""
    folder = Path(environ.get(FOLDER) or environ["TREK_MEMBER_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    host, _, port = environ[ADDRESSES].rpartition(":")
    secret, is_one_machine = environ["TREK_JOB_SECRET"], is_loopback(host)
    listener = listen_at(host, int(port), is_one_machine=is_one_machine)
    coordinator = Coordinator(
        secret=secret,
        settings=MembershipSettings(**json.loads(environ[SETTINGS])),
        folder=folder,
        clock=SystemClock(),
        store=JobStoreServer(listen_at(host, 0, is_one_machine=is_one_machine), secret=secret),
    )
    asyncio.run(_serve(coordinator, listener))


async def _serve(coordinator: Coordinator, listener: socket.socket) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, coordinator.stop)
    await coordinator.serve(listener)


if __name__ == "__main__":
    main()
