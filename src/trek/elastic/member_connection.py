"""One process's connection to the coordinator, on the coordinator's side: the proof, then frames of JSON.

The counterpart of `trek.wire.job_connection.connect`, within an event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import struct
from collections.abc import Callable
from typing import Any

from trek.wire.job_connection import HANDSHAKE_S, MAX_MESSAGE_BYTES, NONCE_BYTES, PROOF_BYTES, proof

_HEAD = struct.Struct("!I")


class MemberConnection(asyncio.Protocol):
    """Speaks to nobody who does not know the secret."""

    def __init__(
        self,
        secret: str,
        *,
        on_message: Callable[[MemberConnection, dict[str, Any]], None],
        on_lost: Callable[[MemberConnection], None],
    ) -> None:
        self.member: str | None = None
        """The name that the process joined under."""
        self._secret = secret
        self._on_message = on_message
        self._on_lost = on_lost
        self._received = bytearray()
        self._nonce = os.urandom(NONCE_BYTES)
        self._is_proved = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the challenge, and give it a while to be answered."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._nonce)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Pass on whole messages."""
        self._received += data
        if not self._is_proved and not self._prove():
            return
        at = 0
        while len(self._received) - at >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._received, at)
            if length > MAX_MESSAGE_BYTES:
                self._transport.abort()
                return
            if len(self._received) - at - _HEAD.size < length:
                break
            start, at = at + _HEAD.size, at + _HEAD.size + length
            self._on_message(self, json.loads(self._received[start:at]))
        del self._received[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended, or can no longer be reached."""
        self._deadline.cancel()
        self._on_lost(self)

    def send(self, message: dict[str, Any]) -> None:
        """Send an object."""
        body = json.dumps(message).encode()
        self._transport.write(_HEAD.pack(len(body)) + body)

    def close(self) -> None:
        """End the connection; what was sent before still arrives."""
        self._transport.close()

    def _prove(self) -> bool:
        if len(self._received) < NONCE_BYTES + PROOF_BYTES:
            return False
        other, given = self._received[:NONCE_BYTES], self._received[NONCE_BYTES : NONCE_BYTES + PROOF_BYTES]
        del self._received[: NONCE_BYTES + PROOF_BYTES]
        nonces = self._nonce + bytes(other)
        if not hmac.compare_digest(bytes(given), proof(self._secret, "client", nonces)):
            self._transport.abort()
            return False
        self._deadline.cancel()
        self._is_proved = True
        self._transport.write(proof(self._secret, "server", nonces))
        return True
