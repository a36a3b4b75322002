"""Which server a dense parameter lives on. Pure; rows are placed by their ids (`distinct_ids.server_of`)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

SPLIT_ELEMENTS = 1 << 20
"""A larger parameter is split over all servers."""
_GRAIN = 4096
"""Parts begin at a multiple, so that vectorised arithmetic treats their elements as it would in one piece."""


@dataclass(frozen=True)
class Part:
    """Elements `start` to `stop` (exclusive) of a flat parameter, on one server."""

    server: int
    start: int
    stop: int


def parts_of(name: str, num_elements: int, *, num_servers: int) -> list[Part]:
    """Where a dense parameter lies: on one server by a hash of its name, on all of them if it is large."""
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") % num_servers
    if num_servers == 1 or num_elements <= SPLIT_ELEMENTS:
        return [Part(first, 0, num_elements)]
    size = -(-num_elements // num_servers)
    size += -size % _GRAIN
    starts = range(0, num_elements, size)
    return [Part((first + k) % num_servers, start, min(start + size, num_elements)) for k, start in enumerate(starts)]
