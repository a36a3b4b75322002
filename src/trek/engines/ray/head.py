"""A Ray cluster of this machine alone, for those who have none: started when it is needed, ended with the block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager

import ray

from trek.engines.ray.connection import connect, start_here
from trek.errors import OutsideError


@contextmanager
def ray_head(
    address: str | None, *, on_start: Callable[[str], None], environ: MutableMapping[str, str] = os.environ
) -> Iterator[None]:
    """Connect to the cluster at `address`, RAY_ADDRESS or of this machine; start one here if there is none.

    One that is started here ends with this process. Other machines join it by `ray start --address`.
    """
    try:
        connect(address, environ=environ)
    except OutsideError:
        if address or environ.get("RAY_ADDRESS"):  # it was named, and so another one is not what was meant
            raise
        environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        start_here()
    on_start(ray.get_runtime_context().gcs_address)
    try:
        yield
    finally:
        ray.shutdown()
