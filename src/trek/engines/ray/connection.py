"""The connection of this process to a Ray cluster: one per process, opened when first needed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

import trek
from trek.errors import ConfigError, InputError, OutsideError

NAMESPACE = "trek"
_connecting = threading.Lock()
_REACH_TIMEOUT_S = 5.0
_PACKAGE = str(Path(trek.__file__).parent)
_WITH_TREK = {"py_modules": [_PACKAGE], "excludes": ["__pycache__"]}


def connect(address: str | None, *, sends_trek: bool = False, environ: Mapping[str, str] = os.environ) -> None:
    """Connect to the cluster at `address`; to that of RAY_ADDRESS, or of this machine, if None.

    A process that is connected already keeps its connection: a user's program, or an earlier gang's. With `sends_trek`,
    nodes get this process's Trek, whatever is installed there.
    """
    with _connecting:
        if ray.is_initialized():
            _check_same(address)
            _check_sent(sends_trek)
            return
        chosen = address or environ.get("RAY_ADDRESS") or "auto"
        _require_reachable(chosen)
        try:
            _init(chosen, runtime_env=_WITH_TREK if sends_trek else {})
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"at {chosen!r}" if chosen != "auto" else "on this machine"
            raise OutsideError(
                f"no Ray cluster can be reached {where}: {str(error).splitlines()[0]} Start one with "
                "`ray start --head` or `trek up --ray`, or set the engine's option address, or RAY_ADDRESS. Where a "
                "cluster demands a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token."
            ) from error


def _require_reachable(address: str) -> None:
    """Fail at once where nobody listens: Ray itself tries for a minute. What Ray finds itself, Ray checks."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise InputError(
            f"{address!r} is not a valid address of a Ray cluster: expected host:port, such as 10.0.0.1:6379. "
            "Ray's client (ray://) is not supported: run the program on a node, as with `ray job submit`."
        )
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_TIMEOUT_S).close()
    except OSError as error:
        raise OutsideError(
            f"no Ray cluster answers at {address}: {error}. Check the address, and that the cluster is running."
        ) from error


def start_here() -> None:
    """Start a cluster of this machine, which ends with this process."""
    _init("local", include_dashboard=False)


def _init(address: str, **more: Any) -> None:
    with _own_signals():
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
            **more,
        )


def _check_sent(sends_trek: bool) -> None:
    """What nodes are sent is decided when a process connects, since Ray has it so."""
    modules = ray.get_runtime_context().runtime_env.get("py_modules", [])
    if sends_trek and not modules:
        raise ConfigError(
            "this process is connected to Ray already, without sending Trek to the nodes. Set send_trek where it "
            f"connects first, or connect with ray.init(runtime_env={{'py_modules': [{_PACKAGE!r}]}})."
        )


def _check_same(address: str | None) -> None:
    """One process has one cluster, since Ray has it so."""
    own = ray.get_runtime_context().gcs_address
    if address and "auto" not in address and own != address:
        _require_reachable(address)
        raise ConfigError(
            f"this process is connected to the Ray cluster at {own!r}, not to {address!r}. Leave the address out, "
            "or call ray.shutdown() first."
        )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM, which a program that saves and ends has set for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def living_nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
