"""How a process finds out that it is a worker of an elastic job, and connects to the job's coordinator."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import overload

from trek.elastic.coordinator_client import CoordinatorClient, MemberClient
from trek.elastic.coordinator_process import ADDRESSES, SETTINGS
from trek.elastic.membership_settings import MembershipSettings
from trek.errors import InputError
from trek.system.clock import SystemClock
from trek.world import World

STARTED = "TREK_JOB_STARTED_S"
HEARTBEAT = "TREK_HEARTBEAT_S"
_ROLE = "TREK_ROLE"


def is_elastic(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a worker of a job whose workers come and go."""
    return bool(environ.get(ADDRESSES)) and environ.get(_ROLE) == "worker"


def membership_settings(least: int, most: int, environ: Mapping[str, str] = os.environ) -> MembershipSettings:
    """Those of a job with so many workers; TREK_HEARTBEAT_S says how long a worker may hang before it is replaced."""
    if HEARTBEAT not in environ:
        return MembershipSettings(least, most)
    try:
        return MembershipSettings(least, most, heartbeat_s=float(environ[HEARTBEAT]))
    except ValueError:
        raise InputError(f"{HEARTBEAT} must be a number of seconds, got {environ[HEARTBEAT]!r}.") from None


def job_started_s(environ: Mapping[str, str] = os.environ) -> float:
    """When the job of this process was started, on the clock of the machine that started it; 0 if that is unknown."""
    return float(environ.get(STARTED, "0"))


def elastic_world(world: World, environ: Mapping[str, str] = os.environ) -> World:
    """The World of a worker of an elastic job until it belongs to a generation, made from that of its gang."""
    settings = json.loads(environ[SETTINGS])
    return replace(world, max_size=settings["max_workers"], device_name=str(world.device))


@overload
def agree(key: str, value: str, *, world: World) -> str: ...
@overload
def agree(key: str, value: None, *, world: World) -> str | None: ...
def agree(key: str, value: str | None, *, world: World, environ: Mapping[str, str] = os.environ) -> str | None:
    """The value that the first worker of this job gave for `key`: what all must know before they meet.

    `value` None gives none; the answer is None as long as nobody has given one.
    """
    client = CoordinatorClient(_address(environ), secret=_secret(world), clock=SystemClock())
    client.start()
    try:
        agreed: str | None = client.call("agree", key=key, value=value)
        return agreed
    finally:
        client.close()


def open_member(world: World, environ: Mapping[str, str] = os.environ) -> MemberClient:
    """The connection of this process to its coordinator; nothing is sent before it is started."""
    return MemberClient(
        _address(environ),
        secret=_secret(world),
        clock=SystemClock(),
        name=f"{environ.get('TREK_RANK', world.rank)}-{secrets.token_hex(4)}",
        host=socket.gethostname(),
        heartbeat_s=json.loads(environ[SETTINGS])["heartbeat_s"],
        base=world,
    )


def _address(environ: Mapping[str, str]) -> tuple[str, int]:
    host, _, port = environ[ADDRESSES].split(",")[0].rpartition(":")
    return host, int(port)


def _secret(world: World) -> str:
    if not world.secret:
        raise InputError("TREK_JOB_SECRET is not set, and an elastic job needs one. Start it with trek.")
    return world.secret
