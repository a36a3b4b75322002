"""ServeSettings: how a model is served, validated once. Holds no model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trek.errors import InputError


@dataclass(frozen=True)
class ServeSettings:
    """All settings of a server but its models."""

    name: str = "model"
    """What the model is called in addresses."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 chooses a free one."""
    grpc_port: int | None = None
    """Serve the same protocol over gRPC there, too; 0 chooses a free one."""
    engine: str = "local"
    """Where the processes are that hold the model: `local`, or `ray` for replicas of Ray Serve."""
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the engine: for `ray` those of gangs, such as `address`, and `cpus` and `gpus` of each process."""
    workers: int = 1
    """Processes that hold the model, for each version."""
    batch: int = 8
    """Requests that a worker takes at once, of those that wait, and rows that the model sees at once."""
    device: str = "auto"
    threads: int | None = None
    """Of each worker; by default the cores are shared out among the workers and the front process."""
    max_queue: int = 256
    """Requests of one version that may wait; more are answered with 429."""
    max_body_mb: float = 64.0
    """MiB of a request, and of what it unpacks to if it is compressed."""
    timeout_s: float = 60.0
    """How long a request may wait for a worker; one that does not answer for so long is ended and replaced."""
    key: str | None = None
    """What requests must carry as `Authorization: Bearer KEY`."""
    access_log: str | None = None
    """A file for a line of JSON per request; `-` for stdout."""

    def __post_init__(self) -> None:
        for name in ("workers", "batch", "max_queue", "max_body_mb", "timeout_s"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if self.key is not None and not self.key.strip():
            raise InputError("key is empty, which would let everyone in. Set one (TREK_SERVE_KEY), or pass key=None.")
        if self.engine == "local" and self.engine_options:
            raise InputError(f"engine 'local' has no options, got {dict(self.engine_options)}. Use engine 'ray'.")
        if not self.name or "/" in self.name:
            raise InputError(f"name must be a word without a slash, got {self.name!r}.")

    @property
    def max_body_bytes(self) -> int:
        """Of a request, packed or not."""
        return int(self.max_body_mb * (1 << 20))

    @property
    def num_threads(self) -> int:
        """Threads of each worker."""
        cores = len(os.sched_getaffinity(0))
        return self.threads or max(1, cores // (self.workers + 1))


def check_engine_options(options: Mapping[str, Any], *, known: Iterable[str]) -> None:
    """InputError for an option of an engine that has no effect on serving or predicting."""
    for name in options:
        if name not in known:
            raise InputError(f"engine option {name!r} does not exist here. Use one of: {', '.join(known)}.")
