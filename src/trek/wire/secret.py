"""The mutual proof that two processes of a job know its secret, as HMACs over a random challenge of each. No I/O.

What follows a proof travels unencrypted, so between machines the network itself must be trusted. A client that can
merely connect learns and changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os

NONCE_BYTES, PROOF_BYTES = 32, 32
HANDSHAKE_S = 10.0
"""How long a connection may take to prove that it knows the secret."""
MAX_UNAUTHENTICATED = 64
"""Connections that have not proved it yet; a server closes more at once."""


class AuthenticationError(Exception):
    """The other side does not know the secret."""


class Handshake:
    """One side of the proof, between two different roles: "client" and "server", or two ranks.

    Each side sends `nonce`, then `proof` of the other's. A server sends its proof after it has checked the client's: no
    client gets an answer to a challenge of its own choice.
    """

    def __init__(self, secret: str, *, role: str, peer: str) -> None:
        self._secret = secret
        self._role, self._peer = role, peer
        self.nonce = os.urandom(NONCE_BYTES)

    def proof(self, nonce: bytes) -> bytes:
        """What the peer, which sent `nonce`, checks."""
        return proof(self._secret, self._role, self._challenge(nonce))

    def check(self, nonce: bytes, given: bytes) -> None:
        """AuthenticationError unless the peer, which sent `nonce`, knows the secret."""
        if not hmac.compare_digest(given, proof(self._secret, self._peer, self._challenge(nonce))):
            raise AuthenticationError

    def _challenge(self, nonce: bytes) -> bytes:
        return self.nonce + nonce if self._role < self._peer else nonce + self.nonce


def proof(secret: str, role: str, challenge: bytes) -> bytes:
    """What only a process that knows the secret can answer to a challenge."""
    return hmac.new(secret.encode(), role.encode() + b"\0" + challenge, hashlib.sha256).digest()
