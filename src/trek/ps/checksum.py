"""Checksums of bytes: 64 bits that depend on every byte, on their order, and on the checksum of what came before."""

from __future__ import annotations

from typing import Any

import numpy as np

from trek.ps.compiled import compiled
from trek.ps.id_index import mix
from trek.ps.protocol.tensors import Bytes

_PRIME = 0x9E3779B185EBCA87


def checksum_of(message: bytes, body: Bytes, *, after: int) -> int:
    """The checksum of a message and the bytes that follow it."""
    whole = len(body) // 8 * 8
    rest = np.frombuffer(message + body[whole:].tobytes(), np.uint8)
    return int(_checksum(body[:whole].view(np.uint64), rest, np.uint64(after)))


@compiled
def _checksum(words: Any, rest: Any, after: Any) -> Any:
    """Four sums side by side, since each waits for its own multiplication."""
    prime = np.uint64(_PRIME)
    one, two, three, four = after + prime, after ^ prime, after, np.uint64(len(rest))
    for i in range(0, len(words) - 3, 4):
        one = (one ^ words[i]) * prime
        two = (two ^ words[i + 1]) * prime
        three = (three ^ words[i + 2]) * prime
        four = (four ^ words[i + 3]) * prime
    for i in range(len(words) // 4 * 4, len(words)):
        one = (one ^ words[i]) * prime
    for i in range(len(rest)):
        two = (two ^ np.uint64(rest[i])) * prime
    return mix(mix(mix(mix(one) ^ two) ^ three) ^ four)
