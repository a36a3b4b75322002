"""The connection of this process to a Ray cluster: one per process, opened when first needed."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray

from trek.errors import ConfigError, OutsideError

NAMESPACE = "trek"
_connecting = threading.Lock()


def connect(address: str | None, *, environ: Mapping[str, str] = os.environ) -> None:
    """Connect to the cluster at `address`; to that of RAY_ADDRESS, or of this machine, if None.

    A process that is connected already keeps its connection: a user's program, or an earlier gang's.
    """
    with _connecting:
        if ray.is_initialized():
            _check_same(address)
            return
        chosen = address or environ.get("RAY_ADDRESS") or "auto"
        try:
            with _own_signals():
                ray.init(
                    address=chosen,
                    namespace=NAMESPACE,
                    log_to_driver=False,
                    configure_logging=False,
                    logging_level=logging.ERROR,
                )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"at {chosen!r}" if chosen != "auto" else "on this machine"
            raise OutsideError(
                f"no Ray cluster can be reached {where}: {str(error).splitlines()[0]} Start one with "
                "`ray start --head` or `trek up --ray`, or set the engine's option address, or RAY_ADDRESS."
            ) from error


def _check_same(address: str | None) -> None:
    """One process has one cluster, since Ray has it so."""
    own = ray.get_runtime_context().gcs_address
    if address and "auto" not in address and own != address.removeprefix("ray://"):
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
