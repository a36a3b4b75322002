"""One process's connection to the coordinator, on the coordinator's side: the proof, then frames of JSON.

The counterpart of `trek.wire.connections.connect`, within an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from trek.wire.frames import FrameParser, pack
from trek.wire.secret import HANDSHAKE_S, NONCE_BYTES, PROOF_BYTES, AuthenticationError, Handshake


class MemberConnection(asyncio.Protocol):
    """Serves no client that does not know the secret."""

    def __init__(
        self,
        secret: str,
        *,
        on_message: Callable[[MemberConnection, dict[str, Any]], None],
        on_lost: Callable[[MemberConnection], None],
    ) -> None:
        self.member: str | None = None
        """The name that the process joined under."""
        self._on_message = on_message
        self._on_lost = on_lost
        self._handshake = Handshake(secret, role="server", peer="client")
        self._received = bytearray()
        self._frames: FrameParser | None = None
        """Once the secret is proved."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the challenge, and give it a while to be answered."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._handshake.nonce)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Pass on whole messages."""
        try:
            if self._frames is None:
                data = self._prove(data)
            if self._frames is not None:
                for message, _ in self._frames.feed(data):
                    self._on_message(self, message)
        except (AuthenticationError, EOFError):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended, or can no longer be reached."""
        self._deadline.cancel()
        self._on_lost(self)

    def send(self, message: dict[str, Any]) -> None:
        """Send an object."""
        self._transport.write(pack(message))

    def close(self) -> None:
        """End the connection; what was sent before still arrives."""
        self._transport.close()

    def _prove(self, data: bytes) -> bytes:
        """Check the client's proof once it is complete; returns what follows it."""
        self._received += data
        proved = NONCE_BYTES + PROOF_BYTES
        if len(self._received) < proved:
            return b""
        nonce = bytes(self._received[:NONCE_BYTES])
        self._handshake.check(nonce, bytes(self._received[NONCE_BYTES:proved]))
        self._deadline.cancel()
        self._transport.write(self._handshake.proof(nonce))
        self._frames = FrameParser(max_body_bytes=0)
        return bytes(self._received[proved:])
